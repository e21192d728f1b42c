"""What another decision would have cost, on a module whose call sites are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.variation import Variation, site_keys
from environments.inlining.exploration.explore import ExplorationConfig, explore
from environments.inlining.heuristics import Default, make_heuristic
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    NO_CALL_SITES,
    Replay,
    play,
    write_module,
)

# LLVM fills up the last function's unwind entry to a multiple of 8.
PADDING_BYTES = 4
PAPER = ExplorationConfig(num_rounds=100, callee_rounds=0, flips_per_round=1)
ALONE = ExplorationConfig(callee_rounds=0)


def pairs(count: int) -> str:
    """`count` functions of different length, each called by two others: 2 count refused sites."""
    parts = ["declare void @sink(i32)\n"]
    for k in range(count):
        body = "".join(f"  call void @sink(i32 {value})\n" for value in range(k + 4))
        parts.append(
            f"define internal void @leaf{k}(i32 %x) minsize optsize {{\n{body}  ret void\n}}"
        )
        for caller, argument in ((f"a{k}", "%x"), (f"b{k}", str(k))):
            parts.append(
                f"define void @{caller}(i32 %x) minsize optsize {{\n"
                f"  call void @leaf{k}(i32 {argument})\n  ret void\n}}"
            )
    return "\n".join(parts) + "\n"


# LLVM's estimate does not follow what is stored: it refuses what would fold to nothing.
SAVING = """
declare void @sink(i32)
define void @check(ptr %p) minsize optsize {
  %v = load i32, ptr %p
  %zero = icmp eq i32 %v, 0
  br i1 %zero, label %good, label %bad
bad:
  call void @sink(i32 1)
  call void @sink(i32 2)
  call void @sink(i32 3)
  br label %good
good:
  ret void
}
define void @a() minsize optsize {
  %p = alloca i32
  store i32 0, ptr %p
  call void @check(ptr %p)
  ret void
}
define void @b() minsize optsize {
  %p = alloca i32
  store i32 0, ptr %p
  call void @check(ptr %p)
  ret void
}
"""


@pytest.fixture
def module(tmp_path):
    return write_module(tmp_path, "pairs", pairs(3))


def deltas_by_step(explored):
    return dict(zip(explored.steps.tolist(), explored.deltas.tolist(), strict=True))


def test_one_compile_tells_what_many_would(counting, module):
    together = explore(counting, module, Default(), TrajectoryStore(), ALONE)
    # The base and two rounds, because each leaf has two callers; nothing saves bytes.
    assert counting.num_compiles == 3
    assert np.array_equal(together.best.decisions, together.base.decisions)
    assert together.best.size == together.base.size
    alone = explore(counting, module, Default(), TrajectoryStore(), PAPER)
    assert counting.num_compiles == 3 + 1 + 6
    # With one caller left, a leaf goes into that one too and away: no leaf's bytes alone tell.
    assert sorted(deltas_by_step(alone)) == sorted(deltas_by_step(together)) == list(range(6))
    base = compile_under(Default(), counting, module)
    for step, delta in deltas_by_step(alone).items():
        assert delta > 0
        assert abs(deltas_by_step(together)[step] - delta) <= PADDING_BYTES
        # With one site a compile, deltas are those of the object.
        flip = site_keys(base.names)[step]
        varied = compile_under(Default(), counting, module, Variation(frozenset({flip})))
        assert varied.decisions[step] == 1 - base.decisions[step]
        assert varied.size.text_bytes - base.size.text_bytes == delta


def test_what_saves_is_changed_together_and_kept_as_best(counting, tmp_path):
    module = write_module(tmp_path, "saving", SAVING)
    explored = explore(counting, module, Default(), TrajectoryStore(), ALONE)
    assert explored.base.decisions.tolist() == [0, 0]
    assert sorted(explored.steps.tolist()) == [0, 1] and (explored.deltas < 0).all()
    assert explored.best.decisions.tolist() == [1, 1]
    saved = explored.best.size.text_bytes - explored.base.size.text_bytes
    assert abs(saved - explored.deltas.sum()) <= PADDING_BYTES


def test_only_sites_in_scope_are_tried(counting, module):
    store = TrajectoryStore()

    def steps_within(scope_feature):
        config = ALONE
        return explore(counting, module, Default(), store, config, None, scope_feature).steps

    # All callees of the module are internal, and none is C++'s inline function.
    assert sorted(steps_within("callee_is_local")) == sorted(steps_within("")) == list(range(6))
    counting.num_compiles = 0
    assert steps_within("callee_is_linkonce").tolist() == []
    assert counting.num_compiles == 1


def test_nothing_is_explored_twice(counting, module, tmp_path):
    path = tmp_path / "cache.sqlite"
    store = TrajectoryStore(path)
    first = explore(counting, module, Default(), store, ALONE)
    counting.num_compiles = 0
    store.close()
    store = TrajectoryStore(path)
    again = explore(counting, module, Default(), store, ALONE)
    played = play(counting, module, Default(), store)
    assert counting.num_compiles == 0
    assert deltas_by_step(again) == deltas_by_step(first)
    for recalled, trajectory in (
        (again.base, first.base),
        (again.best, first.best),
        (played, first.base),
    ):
        assert (
            np.array_equal(recalled.features, trajectory.features)
            and recalled.size == trajectory.size
        )
    # How much to explore is part of what is asked for; which modules are small enough is not.
    larger = dataclasses.replace(ALONE, max_bitcode_bytes=1)
    explore(counting, module, Default(), store, larger)
    assert counting.num_compiles == 0
    explore(counting, module, Default(), store, ExplorationConfig(num_rounds=1, callee_rounds=0))
    assert counting.num_compiles == 2


def test_the_least_certain_sites_come_first(counting, module):
    config = ExplorationConfig(num_rounds=1, callee_rounds=0, flips_per_round=1)
    names = play(counting, module, Default(), TrajectoryStore()).names
    for wanted in range(6):

        def certainty_fn(features, wanted=wanted):
            assert features.shape == (6, len(names))
            step = features[:, names.index("decisions_so_far")]
            return np.where(step == wanted, 0.0, 1.0)

        explored = explore(counting, module, Default(), TrajectoryStore(), config, certainty_fn)
        assert explored.steps.tolist() == [wanted]


def test_a_module_without_call_sites(counting, tmp_path):
    none = write_module(tmp_path, "none", NO_CALL_SITES)
    explored = explore(counting, none, Default(), TrajectoryStore(), ALONE)
    assert explored.steps.shape == explored.deltas.shape == (0,)
    assert explored.base.features.shape[0] == 0


# An inline function of C++ that LLVM calls twice. It goes away once both calls are inlined.
TWICE = """
declare void @sink(i32)
define linkonce_odr void @leaf(i32 %x) minsize optsize {
  call void @sink(i32 %x)
  call void @sink(i32 1)
  call void @sink(i32 2)
  call void @sink(i32 3)
  ret void
}
define void @both(i32 %x) minsize optsize {
  call void @leaf(i32 %x)
  call void @leaf(i32 7)
  ret void
}
"""


def test_departures_are_also_taken_back_together(counting, tmp_path):
    module = write_module(tmp_path, "twice", TWICE)
    policy = make_heuristic("always")
    config = ALONE

    def cost(*actions):
        played = play(counting, module, Replay(actions), TrajectoryStore())
        assert played.decisions.tolist() == list(actions)
        return played.size.text_bytes

    base = cost(1, 1)
    joint = (cost(0, 0) - base) / 2
    explored = explore(counting, module, policy, TrajectoryStore(), config)
    assert deltas_by_step(explored) == {
        0: (cost(0, 1) - base + joint) / 2,
        1: (cost(1, 0) - base + joint) / 2,
    }
    # With the leaf in both calls it goes away; with one of them it stays.
    assert joint < 0 < cost(0, 1) - base
    alone = dataclasses.replace(config, joint_rounds=0)
    explored = explore(counting, module, policy, TrajectoryStore(), alone)
    assert deltas_by_step(explored)[0] == cost(0, 1) - base


def test_all_calls_of_a_function_are_tried_together(counting, tmp_path):
    module = write_module(tmp_path, "twice", TWICE)

    def cost(*actions):
        return play(counting, module, Replay(actions), TrajectoryStore()).size.text_bytes

    explored = explore(counting, module, Default(), TrajectoryStore(), ExplorationConfig())
    # What each is worth with the other counts, and not what it costs alone.
    together = (cost(1, 1) - cost(0, 0)) / 2
    assert deltas_by_step(explored) == {0: together, 1: together}
    assert 0 < together < cost(1, 0) - cost(0, 0)
    # A policy that inlines all of them is asked what none would cost.
    policy = make_heuristic("always")
    explored = explore(counting, module, policy, TrajectoryStore(), ExplorationConfig())
    assert deltas_by_step(explored) == {0: -together, 1: -together}


def test_a_call_that_llvm_inlines_is_tried_as_a_call(counting, tmp_path):
    hand_worked = write_module(tmp_path, "hand", HAND_WORKED)
    keys = site_keys(compile_under(Default(), counting, hand_worked).names)
    assert keys == (
        ("caller", "leaf", 1),
        ("caller", "leaf", 2),
        None,
        ("other", "leaf", 1),
        ("other", "caller", 1),
    )
    second = ("caller", "leaf", 2)
    flipped = compile_under(Default(), counting, hand_worked, Variation(frozenset({second})))
    assert site_keys(flipped.names)[:3] == keys[:3]
    assert flipped.decisions.tolist()[:3] == [0, 1, 1]
    base = play(counting, hand_worked, Default(), TrajectoryStore())
    refused = play(counting, hand_worked, Replay([0, 0, 0]), TrajectoryStore())
    explored = explore(counting, hand_worked, Default(), TrajectoryStore(), ALONE)
    delta = refused.size.text_bytes - base.size.text_bytes
    assert deltas_by_step(explored)[2] == delta != 0
    none = dataclasses.replace(ALONE, refusals=0)
    explored = explore(counting, hand_worked, Default(), TrajectoryStore(), none)
    assert 2 not in deltas_by_step(explored)


def test_large_modules_are_tried_as_often_as_the_budget_allows(counting, module):
    size = module.path.stat().st_size
    for num_trials in (0, 1, 2):
        budget_bytes = size * num_trials + size // 2
        config = dataclasses.replace(ALONE, budget_bytes=budget_bytes)
        counting.num_compiles = 0
        explored = explore(counting, module, Default(), TrajectoryStore(), config)
        assert counting.num_compiles == 1 + num_trials
        assert len(explored.steps) == 3 * num_trials
