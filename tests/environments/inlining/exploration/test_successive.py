"""Algorithm 3 of the BC-Max paper, line by line, on a module of four decisions."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import perform
from environments.inlining.exploration.explore import ExplorationConfig
from environments.inlining.exploration.successive import ExploreSuccessively
from environments.inlining.heuristics import Default
from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import SINK, Replay, play, write_module

# The calls are a -> check, b -> check, a0 -> leaf0, b0 -> leaf0, and π, LLVM's default, refuses
# all. It refuses the last call of leaf0 only because a0 calls leaf0 too: once leaf0 is inlined
# there, π inlines it into b0 as well. An inlined check folds to nothing, and a leaf0 does not.
FOUR = SAVING + pairs(1).removeprefix(SINK)

# |π̂(s)(0) - π̂(s)(1)| at the four call sites of τ_1, τ_2 and τ_3.
GAPS = (
    (0.5, 0.2, 0.9, 0.3),  # h_1 = 1 (the first is 0)
    (0.0, 0.0, 0.1, 0.4),  # h_2 = 2: 0 and 1 are not later than h_1; on τ_1 it would be 3
    (0.0, 0.0, 0.0, 0.7),  # h_3 = 3; nothing is later, so that the loop breaks at t = 4
)
# What was played in τ_1 to τ_4: flips stay, and after the last of them π goes on.
PLAYED = (
    (0, 0, 0, 0),
    (0, 1, 0, 0),  # 1 - π(s_1) = 1
    (0, 1, 1, 1),  # 1 - π(s_2) = 1; π(s_3) is 1 now
    (0, 1, 1, 0),  # 1 - π(s_3) = 0
)


class Gaps:
    """π̂, by the rows of GAPS one after the other; `steps` are the sites that it was asked about."""

    def __init__(self, names) -> None:
        self._place = names.index("decisions_so_far")
        self.steps: list[list[int]] = []

    def __call__(self, features):
        self.steps.append(features[:, self._place].tolist())
        return np.array(GAPS[len(self.steps) - 1])[self.steps[-1]]


@pytest.fixture
def four(tmp_path):
    return write_module(tmp_path, "four", FOUR)


def task(max_flips, certainty_fn=None, scope="", explorer="") -> ExploreSuccessively:
    return ExploreSuccessively(
        Default(),
        ExplorationConfig(),
        certainty_fn,
        scope,
        explorer=explorer,
        max_flips={"four": max_flips},
    )


@pytest.mark.parametrize("max_flips", [0, 1, 2, 3, 4])
def test_algorithm_3(counting, four, max_flips):
    store = TrajectoryStore()
    sizes = [play(counting, four, Replay(played), store).size.text_bytes for played in PLAYED]
    # By hand: 39 bytes less with one check folded; leaf0 costs more than two calls of it.
    assert sizes[1] == sizes[0] - 39 < sizes[2] < sizes[3]
    gaps = Gaps(play(counting, four, Default(), store).names)
    counting.num_compiles = 0
    explored = task(max_flips, gaps).run(counting, four)
    num_flips = min(max_flips, 3)
    # One vanilla compile, and one for each t.
    assert counting.num_compiles == 1 + num_flips
    assert gaps.steps == [[0, 1, 2, 3], [2, 3], [3]][:num_flips]
    assert tuple(explored.base.decisions) == PLAYED[0]
    # t* is that of the smallest of the first num_flips + 1 trajectories: τ_2 once there is one.
    assert tuple(explored.best.decisions) == PLAYED[min(num_flips, 1)]
    assert explored.best.size.text_bytes == sizes[min(num_flips, 1)]
    assert not len(explored.steps) and not len(explored.deltas)


def test_only_sites_in_scope_are_flipped(counting, four):
    """leaf0 is local, check is not: h_1 = 3, of the gaps 0.9 and 0.3, and nothing is later."""
    gaps = Gaps(play(counting, four, Default(), TrajectoryStore()).names)
    explored = task(4, gaps, "callee_is_local").run(counting, four)
    assert gaps.steps == [[2, 3]] and tuple(explored.best.decisions) == (0, 0, 0, 0)
    explored = task(4, gaps, "callee_is_linkonce").run(counting, four)
    assert gaps.steps == [[2, 3]]


def test_what_was_explored_is_kept_for_this_exploration_policy_and_t(counting, four):
    store = TrajectoryStore()
    gaps = Gaps(play(counting, four, Default(), store).names)
    explored = perform(task(2, gaps, explorer="π̂"), counting, four, store)
    counting.num_compiles = 0
    again = perform(task(2, explorer="π̂"), counting, four, store)
    assert counting.num_compiles == 0
    assert again.best.decisions.tolist() == explored.best.decisions.tolist() == [0, 1, 0, 0]
    for differs in (task(0, explorer="π̂"), task(0, explorer="another")):
        perform(differs, counting, four, store)
    assert counting.num_compiles == 2
