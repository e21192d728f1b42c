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
    assert 0 <= first["cloned"] <= 1 and second["cloned"] is None
    # The policy of each iteration is judged on contexts that it was not fitted to.
    assert first["score"] > 0 and len(loop.validated.groups) == 8
    # Two baselines, then base and best of two explorations.
    assert loop.environment_steps == 6 * 96


def test_the_first_exploration_has_no_certainty_and_later_ones_the_policy_s():
    problem = SiteProblem(draw_sites(0), num_tries=3)
    _, (first, second) = run(problem)
    assert (first["flips"], second["flips"]) == (8 * 3, 2 * 8 * 3)
    assert len(problem.certainties) == 8
    assert len(np.unique(np.concatenate(problem.certainties))) > 5


def test_hedge_shifts_weight_to_what_the_learned_policy_left_large(monkeypatch):
    """By Hedge the first iteration weighs as buckets do; a second knows the policy's costs."""
    calls = []

    def noted(sizes, learned_sizes, eta, weigh=bc_max.hedge_weights):
        calls.append(
            (list(sizes), [list(sizes_of_policy) for sizes_of_policy in learned_sizes], eta)
        )
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


def test_without_exploration_it_is_algorithm_1():
    # "never" is best in every context: nothing else is left to learn.
    sites = {f"g{k}/c": (f"g{k}", [(size, -1 - size) for size in range(10)]) for k in range(4)}
    problem = SiteProblem(sites)
    loop, records = run(problem, dataclasses.replace(CONFIG, explore=False), validation=problem)
    never = cost_of(problem, problem.baseline("never"))
    assert cost_of(problem, loop.learned) == never == problem.best_cost()
    assert [record["flips"] for record in records] == [0, 0]
    assert records[1]["policy_cost"] == never


def test_either_kind_of_label_can_be_left_out():
    problem = SiteProblem(draw_sites(0))
    default = cost_of(problem, problem.baseline("default"))
    for name, num_rows in (("advantage", 96), ("imitation", 96 + 96)):
        config = dataclasses.replace(CONFIG, **{name: False}, imitation_scale=1.0)
        loop, records = run(problem, config, num_iterations=1)
        assert records[0]["rows"] == num_rows
        # Without imitation of the best, the default's own episodes are what is imitated.
        if name == "advantage":
            assert cost_of(problem, loop.learned) < default
    labels = loop.labels()
    assert np.array_equal(labels.actions[96:], labels.features[96:, NAMES.index("default_action")])


def test_the_seed_decides_the_policy():
    fingerprints = []
    for seed in (0, 0, 1):
        config = dataclasses.replace(CONFIG, seed=seed, imitation_rows=40)
        loop, _ = run(SiteProblem(draw_sites(0)), config, num_iterations=1)
        fingerprints.append((loop.learned.fingerprint, loop.labels().sha256()))
    assert fingerprints[0] == fingerprints[1]
    assert fingerprints[0][0] != fingerprints[2][0]


class FailsLater(SiteProblem):
    """Contexts fail once the baselines are played."""

    def explore(self, policy, certainty_fn, label, scoped):
        self.broken |= {"g0/context-0", "g1/context-1"}
        return super().explore(policy, certainty_fn, label, scoped)


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
