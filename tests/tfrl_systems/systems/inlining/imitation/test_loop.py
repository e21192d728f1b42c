"""The loop on a problem whose optimum is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining.imitation.site_problem import (
    NAMES,
    SiteProblem,
    draw_sites,
)
from tfrl_systems.agents import bc_max
from tfrl_systems.systems.inlining.imitation import cloning
from tfrl_systems.systems.inlining.imitation.comparison import saving_percent
from tfrl_systems.systems.inlining.imitation.loop import BcMaxLoop, Config

CLONING = cloning.Config(num_models=1, hidden_sizes=(16,), batch_size=16)
CONFIG = Config(baselines=("default", "never"), margins=(0.0, 1.0))


def run(problem, config=CONFIG, num_iterations=2, validation=None):
    loop = BcMaxLoop(problem, validation or SiteProblem(draw_sites(7)), config, CLONING)
    return loop, [loop.collect() | loop.fit() for _ in range(num_iterations)]


def cost_of(problem, policy):
    return sum(outcome.cost for outcome in problem.play(policy, "test"))


def test_it_learns_the_optimum_in_two_iterations():
    problem = SiteProblem(draw_sites(0, num_contexts=16))
    loop, records = run(problem)
    default = cost_of(problem, problem.baseline("default"))
    available = default - problem.best_cost()
    saving = default - cost_of(problem, loop.learned)
    assert saving >= 0.98 * available
    # What it learned is a rule: it holds in contexts that it has not seen.
    others = SiteProblem(draw_sites(1))
    of_others = cost_of(others, others.baseline("default"))
    saved = of_others - cost_of(others, loop.learned)
    assert saved >= 0.95 * (of_others - others.best_cost())
    assert [record["policy"] for record in records] == ["default", "learned-1"]
    assert loop.learned.name == records[1]["learned"] == "learned-2"


def test_what_an_iteration_reports():
    problem = SiteProblem(draw_sites(0))
    loop, (first, second) = run(problem)
    default = cost_of(problem, problem.baseline("default"))
    assert (first["number"], first["contexts"], first["flips"]) == (1, 8, 96)
    assert first["default_cost"] == first["policy_cost"] == default
    assert first["changed"] == first["worse"] == first["policy_saving_percent"] == 0
    # Deltas add up here, and all were tried: the best episode is the best there is.
    assert first["oracle_cost"] == second["oracle_cost"] == problem.best_cost()
    best_saving = saving_percent(default, problem.best_cost())
    assert first["oracle_saving_percent"] == best_saving > 0
    assert first["rows"] == 96 + 96 and second["rows"] == 2 * 96 + 96
    assert second["policy_cost"] < default and 0 < second["changed"] < 1
    assert 0.9 <= second["agreement"] <= 1 and 0 <= second["loss"] < 0.5
    # Around the default nobody is uncertain yet.
    explored = [("default", "", None), ("learned-1", "learned-1", None)]
    assert problem.explored == explored
    # The policy of each iteration is judged on contexts that it was not fitted to.
    assert first["score"] > 0 and len(loop.validated.groups) == 8
    # Two baselines, then base and best of two explorations.
    assert loop.environment_steps == 6 * 96


def test_hedge_shifts_weight_to_what_the_learned_policy_left_large(monkeypatch):
    """By Hedge the first iteration weighs as buckets do; a second knows the policy's costs."""
    calls = []

    def noted(sizes, learned_sizes, eta, weigh=bc_max.hedge_weights):
        calls.append((list(sizes), [list(learned) for learned in learned_sizes], eta))
        return weigh(sizes, learned_sizes, eta)

    monkeypatch.setattr(bc_max, "hedge_weights", noted)
    problem = SiteProblem(draw_sites(0))
    config = dataclasses.replace(CONFIG, context_weights="hedge", hedge_eta=0.5)
    _, records = run(problem, config)
    (sizes, learned, eta), (_, again, _) = calls
    assert eta == 0.5 and learned == [] and len(sizes) == 8
    # The contexts are in the same order; what was played is the first policy.
    (costs,) = again
    assert sum(costs) == records[1]["policy_cost"]
    assert all(cost >= size for cost, size in zip(costs, sizes, strict=True))


PRINTED = {
    **{"around": "all", "flip_share": 0.5, "bucketed_by": "first"},
    **{"advantage": False, "scoped": False, "margins": ()},
}
# Two modules of two decisions, (size, gain) each; the default plays 1 where the size is below 5.
#              default  always  never     costs: 1000 - the gains of the actions 1
#   x_1           1 0     1 1     0 0     default 990, always 1010, never 1000
#   x_2           0 0     1 1     0 0     default 1000, always 970, never 1000
TWO = {"p/x_1": ("p", [(1, 10), (8, -20)]), "q/x_2": ("q", [(7, 5), (9, 25)])}


def test_algorithms_1_and_2_line_by_line():
    problem = SiteProblem(TWO)
    baselines = ("default", "always", "never")
    config = dataclasses.replace(
        CONFIG, **{**PRINTED, "flip_share": 0.0}, explore=False, baselines=baselines
    )
    of_two = dataclasses.replace(CLONING, network_learning_rate=0.03, batch_size=2)
    loop = BcMaxLoop(problem, problem, config, of_two)
    # Line 4 collects a trajectory of each baseline; line 5 takes the default's of x_1, and of x_2
    # that of "always": rewards -990 and -970.
    assert loop.collect()["oracle_cost"] == 990 + 970
    assert problem.labels == [*baselines, "iteration 1, default"]
    # Line 7 has each of their decisions once, a = 0 too. Sizes are in [512, 1024) both, so w = 1.
    labels = loop.labels()
    assert labels.actions.tolist() == [1, 0, 1, 1] and len(set(labels.weights)) == 1
    loop.fit()
    # The objective of Algorithm 2, the number of other decisions, is 0 here: regret 0.
    played = problem.play(loop.learned, "test")
    assert [outcome.actions.tolist() for outcome in played] == [[1, 0], [1, 1]]
    # Line 8: what was learned is a baseline of the next iteration, and is collected again.
    second = loop.collect()
    assert second["policy"] == "learned-1"
    assert second["policy_cost"] == second["oracle_cost"] == 1960
    assert loop.environment_steps == 4 * (3 + 2)


def test_algorithm_4_explores_around_every_policy_so_far():
    """T = ceil(0.5 * 12), and π̂_l is always the policy that was learned last."""
    problem = SiteProblem(draw_sites(0))
    config = dataclasses.replace(CONFIG, **PRINTED)
    loop, records = run(problem, config, num_iterations=3)
    flips = dict.fromkeys(problem.group_of, 6)
    assert problem.explored == [
        # Iteration 1 clones the baselines (D.2). Iteration 2:
        ("learned-1", "learned-1", flips),
        ("default", "learned-1", flips),
        ("never", "learned-1", flips),
        # Iteration 3:
        ("learned-2", "learned-2", flips),
        ("default", "learned-2", flips),
        ("never", "learned-2", flips),
        ("learned-1", "learned-2", flips),
    ]
    # Imitation alone: the decisions of the best trajectories.
    assert [record["rows"] for record in records] == [96, 96, 96]
    assert records[0]["oracle_cost"] > records[1]["oracle_cost"] >= records[2]["oracle_cost"]
    # A run that goes on explores around the same policies.
    again = SiteProblem(draw_sites(0))
    resumed = BcMaxLoop(again, again, config, CLONING)
    for bold in loop.bolds:
        resumed.collect()
        resumed.adopt(bold, bold)
    assert again.explored == problem.explored


def test_buckets_are_those_of_the_first_baselines():
    """D.3, by hand: in [512, 1024) is x_1 under the default, and x_2 and x_3 are in [1024, 2048).

    The best episodes, which "never" has, are all in [512, 1024), where each would have weight 1.
    """
    gains = {"x_1": 10, "x_2": -100, "x_3": -200}
    problem = SiteProblem({name: ("p", [(1, gain)]) for name, gain in gains.items()})
    loop = BcMaxLoop(problem, problem, Config(baselines=("default",), explore=False), CLONING)
    loop.collect()
    loop._pool.append(problem.play(problem.baseline("never"), "explored"))
    assert set(loop.labels().weights) == {0.02}
    loop._config = dataclasses.replace(loop._config, bucketed_by="first")
    np.testing.assert_allclose(loop.labels().weights, [0.02 * 2, 0.02, 0.02])


def test_without_imitation_of_the_best_the_default_s_own_episodes_are_imitated():
    config = dataclasses.replace(CONFIG, imitation=False)
    loop, (record,) = run(SiteProblem(draw_sites(0)), config, num_iterations=1)
    assert record["rows"] == 96 + 96
    labels = loop.labels()
    assert np.array_equal(labels.actions[96:], labels.features[96:, NAMES.index("default_action")])


class FailsLater(SiteProblem):
    """Contexts fail once the baselines are played."""

    def explore(self, *arguments):
        self.broken |= {"g0/context-0", "g1/context-1"}
        return super().explore(*arguments)


def test_contexts_that_fail_are_left_out_of_every_sum():
    sites = {**draw_sites(0), "g0/empty": ("g0", []), "g9/empty": ("g9", [])}
    problem = FailsLater(sites)
    _, (first, second) = run(problem)
    assert first["contexts"] == second["contexts"] == 6 + 2
    default = cost_of(problem, problem.baseline("default"))
    assert first["default_cost"] == first["policy_cost"] == default
    assert (first["flips"], second["flips"]) == (6 * 12, 2 * 6 * 12)


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize(
    ("is_broken", "message"),
    [(True, "expected contexts that can be played"), (False, "expected decisions to learn from")],
)
def test_nothing_to_learn_from(explore, is_broken, message):
    sites = {"a/c": ("a", []), "b/c": ("b", [])}
    problem = SiteProblem(sites, broken=sites if is_broken else ())
    with pytest.raises(UserError, match=message):
        run(problem, dataclasses.replace(CONFIG, explore=explore))


@pytest.mark.parametrize("scoped", [True, False])
def test_a_scoped_policy_departs_only_inside_the_scope(scoped):
    problem, validation = SiteProblem(draw_sites(0, num_contexts=16)), SiteProblem(draw_sites(7))
    # Only decisions to undo the default's action 1 carry over to other groups.
    problem.scope_feature = validation.scope_feature = "default_action"
    config = dataclasses.replace(CONFIG, scoped=scoped)
    loop, (first, _) = run(problem, config, validation=validation)
    episodes = problem.play(loop.learned, "test")
    outside = [episode.actions[episode.features[:, 1] == 0] for episode in episodes]
    inside = [episode.actions[episode.features[:, 1] == 1] for episode in episodes]
    assert 0 < np.concatenate(inside).mean() < 1
    assert (np.concatenate(outside).max() == 0) == scoped
    in_scope = sum(int(episode.features[:, 1].sum()) for episode in episodes)
    assert first["flips"] == (in_scope if scoped else 16 * 12)
