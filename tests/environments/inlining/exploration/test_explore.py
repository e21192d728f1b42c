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
    SINK,
    Replay,
    function,
    play,
    sinks,
    write_module,
)

# LLVM fills up the last function's unwind entry to a multiple of 8.
PADDING_BYTES = 4
PAPER = ExplorationConfig(num_rounds=100, callee_rounds=0, flips_per_round=1)
ALONE = ExplorationConfig(callee_rounds=0)
DEFAULT = Default()


def pairs(count: int) -> str:
    """`count` functions of different length, each called by two others: 2 count refused sites."""
    parts = [SINK]
    for k in range(count):
        parts += [
            function(f"internal void @leaf{k}(i32 %x)", *sinks(*range(k + 4))),
            function(f"void @a{k}(i32 %x)", f"@leaf{k}(i32 %x)"),
            function(f"void @b{k}(i32 %x)", f"@leaf{k}(i32 {k})"),
        ]
    return "".join(parts)


# LLVM's estimate does not follow what is stored: it refuses what would fold to nothing.
CHECK = """
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
"""
CALLER = """define void @NAME() minsize optsize {
  %p = alloca i32
  store i32 0, ptr %p
  call void @check(ptr %p)
  ret void
}
"""
SAVING = CHECK + CALLER.replace("NAME", "a") + CALLER.replace("NAME", "b")


@pytest.fixture
def module(tmp_path):
    return write_module(tmp_path, "pairs", pairs(3))


def deltas_of(compiler, module, policy=DEFAULT, config=ALONE, **settings):
    """The Δbytes found, by call site."""
    explored = explore(compiler, module, policy, TrajectoryStore(), config, **settings)
    return dict(zip(explored.steps.tolist(), explored.deltas.tolist(), strict=True))


def text_bytes(compiler, module, *actions):
    """Size of the object after these actions and LLVM's own."""
    return play(compiler, module, Replay(actions), TrajectoryStore()).size.text_bytes


def test_one_compile_tells_what_many_would(counting, module):
    together = deltas_of(counting, module)
    # The base and two rounds, because each leaf has two callers; nothing saves bytes.
    assert counting.num_compiles == 3
    alone = deltas_of(counting, module, config=PAPER)
    assert counting.num_compiles == 3 + 1 + 6
    # With one caller left, a leaf goes into that one too and away: no leaf's bytes alone tell.
    assert sorted(alone) == sorted(together) == list(range(6))
    base = compile_under(DEFAULT, counting, module)
    for step, delta in alone.items():
        assert delta > 0
        assert abs(together[step] - delta) <= PADDING_BYTES
        # With one site a compile, deltas are those of the object.
        flip = site_keys(base.names)[step]
        varied = compile_under(DEFAULT, counting, module, Variation(frozenset({flip})))
        assert varied.decisions[step] == 1 - base.decisions[step]
        assert varied.size.text_bytes - base.size.text_bytes == delta


def test_what_saves_is_changed_together_and_kept_as_best(counting, tmp_path):
    module = write_module(tmp_path, "saving", SAVING)
    explored = explore(counting, module, DEFAULT, TrajectoryStore(), ALONE)
    assert explored.base.decisions.tolist() == [0, 0]
    assert sorted(explored.steps.tolist()) == [0, 1] and (explored.deltas < 0).all()
    assert explored.best.decisions.tolist() == [1, 1]
    saved = explored.best.size.text_bytes - explored.base.size.text_bytes
    assert abs(saved - explored.deltas.sum()) <= PADDING_BYTES


def test_only_sites_in_scope_are_tried(counting, module):
    """All callees of the module are internal, and none is C++'s inline function."""
    local = deltas_of(counting, module, scope_feature="callee_is_local")
    assert sorted(local) == list(range(6))
    counting.num_compiles = 0
    assert deltas_of(counting, module, scope_feature="callee_is_linkonce") == {}
    assert counting.num_compiles == 1


def test_nothing_is_explored_twice(counting, module, tmp_path):
    path = tmp_path / "cache.sqlite"
    first = explore(counting, module, DEFAULT, TrajectoryStore(path), ALONE)
    counting.num_compiles = 0
    store = TrajectoryStore(path)
    again = explore(counting, module, DEFAULT, store, ALONE)
    assert counting.num_compiles == 0
    for name in ("steps", "deltas"):
        assert np.array_equal(getattr(again, name), getattr(first, name))
    for recalled, trajectory in ((again.base, first.base), (again.best, first.best)):
        assert np.array_equal(recalled.features, trajectory.features)
        assert recalled.size == trajectory.size
    # How much to explore is part of what is asked for; which modules are small enough is not.
    larger = dataclasses.replace(ALONE, max_bitcode_bytes=1)
    explore(counting, module, DEFAULT, store, larger)
    assert counting.num_compiles == 0
    explore(counting, module, DEFAULT, store, ExplorationConfig(num_rounds=1, callee_rounds=0))
    assert counting.num_compiles == 2


def test_the_least_certain_sites_come_first(counting, module):
    config = ExplorationConfig(num_rounds=1, callee_rounds=0, flips_per_round=1)
    names = play(counting, module, DEFAULT, TrajectoryStore()).names
    for wanted in range(6):

        def certainty_fn(features, wanted=wanted):
            assert features.shape == (6, len(names))
            step = features[:, names.index("decisions_so_far")]
            return np.where(step == wanted, 0.0, 1.0)

        deltas = deltas_of(counting, module, config=config, certainty_fn=certainty_fn)
        assert list(deltas) == [wanted]


# An inline function of C++ that LLVM calls twice. It goes away once both calls are inlined.
TWICE = (
    SINK
    + function("linkonce_odr void @leaf(i32 %x)", *sinks("%x", 1, 2, 3))
    + function("void @both(i32 %x)", "@leaf(i32 %x)", "@leaf(i32 7)")
)


def test_departures_are_also_taken_back_together(counting, tmp_path):
    module = write_module(tmp_path, "twice", TWICE)
    policy = make_heuristic("always")
    base = text_bytes(counting, module, 1, 1)
    joint = (text_bytes(counting, module, 0, 0) - base) / 2
    first, second = (text_bytes(counting, module, *actions) - base for actions in ((0, 1), (1, 0)))
    # With the leaf in both calls it goes away; with one of them it stays.
    assert joint < 0 < first
    expected = {0: (first + joint) / 2, 1: (second + joint) / 2}
    assert deltas_of(counting, module, policy) == expected
    alone = dataclasses.replace(ALONE, joint_rounds=0)
    assert deltas_of(counting, module, policy, alone)[0] == first


def test_all_calls_of_a_function_are_tried_together(counting, tmp_path):
    module, config = write_module(tmp_path, "twice", TWICE), ExplorationConfig()
    none, first, both = (
        text_bytes(counting, module, *actions) for actions in ((0, 0), (1, 0), (1, 1))
    )
    # What each is worth with the other counts, and not what it costs alone.
    together = (both - none) / 2
    assert deltas_of(counting, module, config=config) == {0: together, 1: together}
    assert 0 < together < first - none
    # A policy that inlines all of them is asked what none would cost.
    always = deltas_of(counting, module, make_heuristic("always"), config)
    assert always == {0: -together, 1: -together}


def test_a_call_that_llvm_inlines_is_tried_as_a_call(counting, tmp_path):
    hand_worked = write_module(tmp_path, "hand", HAND_WORKED)
    keys = site_keys(compile_under(DEFAULT, counting, hand_worked).names)
    assert keys == (
        ("caller", "leaf", 1),
        ("caller", "leaf", 2),
        None,
        ("other", "leaf", 1),
        ("other", "caller", 1),
    )
    second = ("caller", "leaf", 2)
    flipped = compile_under(DEFAULT, counting, hand_worked, Variation(frozenset({second})))
    assert site_keys(flipped.names)[:3] == keys[:3]
    assert flipped.decisions.tolist()[:3] == [0, 1, 1]
    refused = text_bytes(counting, hand_worked, 0, 0, 0)
    delta = refused - text_bytes(counting, hand_worked)
    assert deltas_of(counting, hand_worked)[2] == delta != 0
    none = dataclasses.replace(ALONE, refusals=0)
    assert 2 not in deltas_of(counting, hand_worked, config=none)


def test_large_modules_are_tried_as_often_as_the_budget_allows(counting, module):
    size = module.path.stat().st_size
    for num_trials in (0, 1, 2):
        budget_bytes = size * num_trials + size // 2
        config = dataclasses.replace(ALONE, budget_bytes=budget_bytes)
        counting.num_compiles = 0
        assert len(deltas_of(counting, module, config=config)) == 3 * num_trials
        assert counting.num_compiles == 1 + num_trials
