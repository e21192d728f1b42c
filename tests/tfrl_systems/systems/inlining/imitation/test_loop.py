"""The loop on a problem whose optimum is known."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining.imitation.site_problem import (
    NAMES,
    SiteProblem,
    draw_sites,
)
from tfrl_systems.agents import bc_max
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.comparison import evaluate, saving_percent
from tfrl_systems.systems.inlining.imitation.loop import BcMaxLoop, Config

AGENT = decision_agent.Config(num_models=1, hidden_sizes=(16,), batch_size=16)
CONFIG = Config(baselines=("default", "never"), margins=(0.0, 1.0))


def run(problem, config=CONFIG, agent_config=AGENT, num_iterations=2, before=(), validation=None):
    validation = validation or SiteProblem(draw_sites(7))
    loop = BcMaxLoop(problem, validation, config, agent_config)
    records = [
        loop.step(policy)
        for _, policy in itertools.zip_longest(range(num_iterations), before, fillvalue=None)
    ]
    return loop, records


def cost_of(problem, policy):
    return sum(one.cost for one in problem.play(policy, "test"))


def test_it_learns_the_optimum_in_two_iterations():
    problem = SiteProblem(draw_sites(0, num_contexts=16))
    loop, records = run(problem)
    default = cost_of(problem, problem.baseline("default"))
    available = default - problem.best_cost()
    found = default - cost_of(problem, loop.learned)
    assert found >= 0.98 * available
    # What it learned is a rule: it holds in contexts that it has not seen.
    others = SiteProblem(draw_sites(1))
    of_others = cost_of(others, others.baseline("default"))
    saved = of_others - cost_of(others, loop.learned)
    assert saved >= 0.95 * (of_others - others.best_cost())
    assert [one.policy for one in records] == ["default", "learned-1"]
    assert loop.learned.name == "learned-2"


def test_what_an_iteration_reports():
    problem = SiteProblem(draw_sites(0))
    loop, (first, second) = run(problem)
    default = cost_of(problem, problem.baseline("default"))
    assert (first.number, first.contexts, first.flips) == (1, 8, 96)
    assert first.default_cost == first.policy_cost == default
    assert first.changed == first.worse == first.policy_saving_percent == 0
    # Deltas add up here, and all were tried: the best episode is the best there is.
    assert first.oracle_cost == second.oracle_cost == problem.best_cost()
    assert first.oracle_saving_percent == saving_percent(default, problem.best_cost()) > 0
    assert first.rows == 96 + 96 and second.rows == 2 * 96 + 96
    assert second.policy_cost < default and 0 < second.changed < 1
    assert 0.9 <= second.agreement <= 1 and 0 <= second.loss < 0.5
    # The policy of each iteration is judged on contexts that it was not fitted to.
    assert first.score > 0 and second.score == loop.chosen.cautious.score
    # Two baselines, then base and best of two explorations.
    assert loop.environment_steps == 6 * 96


def test_a_default_that_costs_nothing_cannot_be_improved_on():
    assert saving_percent(0, 5) == 0 and saving_percent(200, 150) == 25


def test_the_first_exploration_has_no_certainty_and_later_ones_the_policy_s():
    problem = SiteProblem(draw_sites(0), num_tries=3)
    loop, (first, second) = run(problem)
    assert (first.flips, second.flips) == (8 * 3, 2 * 8 * 3)
    assert len(problem.certainties) == 8
    assert len(np.unique(np.concatenate(problem.certainties))) > 5
    assert loop.learned is not None


def test_hedge_shifts_weight_to_what_the_learned_policy_left_large(monkeypatch):
    """By Hedge the first iteration weighs as buckets do; a second knows the policy's costs."""
    given = []

    def noted(sizes, learned_sizes, eta, weigh=bc_max.hedge_weights):
        given.append((list(sizes), [list(one) for one in learned_sizes], eta))
        return weigh(sizes, learned_sizes, eta)

    monkeypatch.setattr(bc_max, "hedge_weights", noted)
    problem = SiteProblem(draw_sites(0))
    config = dataclasses.replace(CONFIG, context_weights="hedge", hedge_eta=0.5)
    loop, records = run(problem, config)
    (sizes, learned, eta), (_, again, _) = given
    assert eta == 0.5 and learned == [] and len(sizes) == len(problem.contexts)
    # The contexts are in the same order; what was played is the first policy.
    (costs,) = again
    assert sum(costs) == records[1].policy_cost
    assert all(cost >= size for cost, size in zip(costs, sizes, strict=True))
    assert loop.learned.name == "learned-2"


def test_without_exploration_it_is_algorithm_1():
    # "never" is best in every context: nothing else is left to learn.
    sites = {f"g{k}/c": (f"g{k}", [(size, -1 - size) for size in range(10)]) for k in range(4)}
    problem = SiteProblem(sites)
    loop, records = run(problem, dataclasses.replace(CONFIG, explore=False), validation=problem)
    never = cost_of(problem, problem.baseline("never"))
    assert cost_of(problem, loop.learned) == never == problem.best_cost()
    assert [one.flips for one in records] == [0, 0]
    assert records[1].policy_cost == never


def test_without_exploration_it_is_no_better_than_the_best_baseline():
    problem = SiteProblem(draw_sites(0))
    loop, records = run(problem, dataclasses.replace(CONFIG, explore=False, baselines=("default",)))
    assert cost_of(problem, loop.learned) == records[0].default_cost == records[1].oracle_cost


def test_either_kind_of_label_can_be_left_out():
    problem = SiteProblem(draw_sites(0))
    default = cost_of(problem, problem.baseline("default"))
    for name, num_rows in (("advantage", 96), ("imitation", 96 + 96)):
        config = dataclasses.replace(CONFIG, **{name: False}, imitation_scale=1.0)
        loop, records = run(problem, config, num_iterations=1)
        assert records[0].rows == num_rows
        # Without imitation of the best, the default's own episodes are what is imitated.
        if name == "advantage":
            assert cost_of(problem, loop.learned) < default
    labels = loop.labels()
    assert np.array_equal(labels.actions[96:], labels.features[96:, NAMES.index("default_action")])


def test_equal_seeds_give_equal_policies():
    fingerprints = []
    for seed in (0, 0, 1):
        config = dataclasses.replace(CONFIG, seed=seed, imitation_rows=40)
        loop, _ = run(SiteProblem(draw_sites(0)), config)
        fingerprints.append((loop.learned.fingerprint, loop.labels().sha256()))
    assert fingerprints[0] == fingerprints[1]
    assert fingerprints[0][0] != fingerprints[2][0]


def test_a_resumed_run_ends_as_one_that_was_not_interrupted():
    whole, _ = run(SiteProblem(draw_sites(0)), num_iterations=1)
    first = whole.learned, whole.bold
    expected = whole.step()
    problem = SiteProblem(draw_sites(0))
    resumed, (recalled, record) = run(problem, before=[first])
    assert recalled.policy == "default" and math.isnan(recalled.loss)
    assert resumed.learned.fingerprint == whole.learned.fingerprint != first[0].fingerprint
    assert resumed.labels().sha256() == whole.labels().sha256()
    same = [
        (one.policy, one.policy_cost, one.oracle_cost, one.rows, one.loss, one.margin)
        for one in (record, expected)
    ]
    assert same[0] == same[1]


class FailsLater(SiteProblem):
    """Contexts fail once the baselines are played."""

    def explore(self, policy, certainty_fn, label, scoped):
        self.broken |= {"g0/context-0", "g1/context-1"}
        return super().explore(policy, certainty_fn, label, scoped)


def test_contexts_that_fail_are_left_out_of_every_sum():
    problem = FailsLater(draw_sites(0))
    _, (first, second) = run(problem)
    assert first.contexts == second.contexts == 6
    default = cost_of(problem, problem.baseline("default"))
    assert first.default_cost == first.policy_cost == default
    assert first.flips == 6 * 12
    found = evaluate(problem, problem.baseline("never"), "")
    assert found.to_json()["contexts"] == 6


def test_contexts_without_decisions_do_no_harm():
    sites = {**draw_sites(0), "g0/empty": ("g0", []), "g9/empty": ("g9", [])}
    loop, (_, second) = run(SiteProblem(sites))
    assert second.contexts == 10 and second.flips == 2 * 96
    assert loop.learned is not None


@pytest.mark.parametrize("explore", [True, False])
def test_no_decisions_at_all(explore):
    problem = SiteProblem({"a/c": ("a", []), "b/c": ("b", [])})
    with pytest.raises(UserError, match="expected decisions to learn from, found none"):
        run(problem, dataclasses.replace(CONFIG, explore=explore))


@pytest.mark.parametrize("explore", [True, False])
def test_all_contexts_fail(explore):
    sites = draw_sites(0)
    problem = SiteProblem(sites, broken=sites)
    with pytest.raises(UserError, match="expected contexts that can be played"):
        run(problem, dataclasses.replace(CONFIG, explore=explore))


def test_a_baseline_that_there_is_not():
    with pytest.raises(UserError, match="found cost<3"):
        run(SiteProblem(draw_sites(0)), dataclasses.replace(CONFIG, baselines=("cost<3",)))


def test_evaluation_by_hand():
    #                 default: 1 where size < 5         cost of default   of always
    sites = {
        "a": ("p", [(1, 10), (9, 4), (9, -1)]),  #      990               987
        "b": ("q", [(9, -7)]),  #                       1000              1007
        "c": ("q", []),  #                              1000              1000
    }
    problem = SiteProblem(sites)
    found = evaluate(problem, problem.baseline("always"), "x")
    assert found.to_json() == {
        "policy": "always",
        "contexts": 3,
        "cost": 2994.0,
        "default_cost": 2990.0,
        "worse": 1,
        "changed": 0.75,
        "saving_percent": pytest.approx(-100 * 4 / 2990),
        "saving_percent_by_group": {
            "p": pytest.approx(100 * 3 / 990),
            "q": pytest.approx(-100 * 7 / 2000),
        },
    }
    curves = found.comparison.curves()
    assert curves["saving_percent_by_group/q"] == found.to_json()["saving_percent_by_group"]["q"]
    # One number for each context; one without decisions has no share of them.
    np.testing.assert_allclose(
        curves["histogram/saving_percent"], [100 * 3 / 990, -100 * 7 / 1000, 0]
    )
    np.testing.assert_allclose(curves["histogram/share_of_decisions_changed"], [2 / 3, 1])
    assert problem.labels == ["x, default", "x, always"]


@pytest.mark.parametrize("scoped", [True, False])
def test_a_scoped_policy_departs_only_inside_the_scope(scoped):
    problem = SiteProblem(draw_sites(0, num_contexts=16))
    # Only decisions to undo the default's action 1 carry over to other groups.
    problem.scope_feature = "default_action"
    loop, (first, _) = run(problem, dataclasses.replace(CONFIG, scoped=scoped))
    episodes = problem.play(loop.learned, "test")
    outside = [one.actions[one.features[:, 1] == 0] for one in episodes]
    inside = [one.actions[one.features[:, 1] == 1] for one in episodes]
    assert 0 < np.concatenate(inside).mean() < 1
    assert (np.concatenate(outside).max() == 0) == scoped
    in_scope = sum(int(one.features[:, 1].sum()) for one in episodes)
    assert first.flips == (in_scope if scoped else 16 * 12)
