"""Evolution strategies: ranks and gradients by hand, and what failures do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.agents import es
from tfrl_systems.drivers.direction_runner import DirectionRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import variables
from tfrl_systems.policies.directions import Directions
from tfrl_systems.policies.numpy_actor import NumpyActor

OBSERVATION = np.array([[0.5, -0.25]], np.float32)
TARGET = 0.7


def make_agent(**settings):
    spec = ts.time_step_spec(array_spec.ArraySpec((2,), np.float32, "seen"))
    action = array_spec.BoundedArraySpec((1,), np.float32, -1, 1, "x")
    return es.make_agent(es.Config(hidden_sizes=(4,), **settings), spec, action)


class Runner:
    """Plays nothing: the return is how near the policy's answer is to the target.

    It crashes wherever it is farther off than `reach`.
    """

    def __init__(self, agent, target=TARGET, reach=np.inf):
        self._actor = NumpyActor.from_policy(agent.collect_policy)
        self._target, self._reach = target, reach
        self.load = self._actor.load

    def run(self, job):
        step = ts.restart(OBSERVATION, batch_size=1)
        answer = self._actor.act(step, np.random.default_rng(job.index)).action
        distance = float(abs(answer[0, 0] - self._target))
        if distance > self._reach:
            raise RuntimeError("core dumped")
        return SimpleNamespace(num_steps=3, num_episodes=1, evaluations=0, mean_return=-distance)


def tried(agent, runner, iteration, count=8, iterations=60):
    directions = DirectionRunner(lambda: runner, agent.perturbation(iterations))
    directions.load(variables.to_bytes(agent.collect_policy.variables(), iteration))
    return Directions.concatenate([directions.run(Chunk(iteration, k, 5)) for k in range(count)])


def test_ranks_by_hand():
    """Six returns have ranks 0 … 5; equal ones share theirs, and a failure is the worst."""
    returns = np.array([[3.0, 1.0], [2.0, 2.0], [np.nan, 5.0]])
    # Ascending: nan 0, 1.0 1, 2.0 and 2.0 share 2.5, 3.0 4, 5.0 5.
    expected = np.array([[4, 1], [2.5, 2.5], [0, 5]]) / 5 - 0.5
    np.testing.assert_allclose(es.centred_ranks(returns), expected)
    assert not es.centred_ranks(np.full((4, 2), 7.0)).any()


def test_the_gradient_by_hand(monkeypatch):
    """One direction, better at its first end: half of its noise, as 1 / (2 N) (1/2 + 1/2)."""
    agent = make_agent(noise_std=0.1, final_noise_std=0.001)
    perturbation = agent.perturbation(iterations=3)
    assert (perturbation.std, perturbation.fall) == pytest.approx((0.1, 0.1))
    trained = agent.actor_network.trainable_variables
    # Adam's gradients, which it descends, become the variables.
    monkeypatch.setattr(
        agent.optimizer,
        "apply_gradients",
        lambda pairs: [variable.assign(-gradient) for gradient, variable in pairs],
    )
    seeds = np.array([[5, 0, 0]])
    for returns, share in (((2.0, 1.0), 0.5), ((1.0, 1.0), 0.0)):
        info = agent.train(Directions(seeds, np.array([returns]), 0, 2)).extra
        noises = [share * noise for noise in perturbation.noise(seeds[0])]
        for variable, noise in zip(trained, noises, strict=True):
            np.testing.assert_allclose(variable.numpy(), noise)
        norm = np.sqrt(sum(np.sum(noise**2) for noise in noises))
        assert info.step_norm == pytest.approx(norm)


def test_it_learns_and_likeliest_actions_are_all_it_takes():
    agent = make_agent(learning_rate=0.1, final_learning_rate=0.01, noise_std=0.1)
    runner, first = Runner(agent), None
    for iteration in range(60):
        directions = tried(agent, runner, iteration)
        assert directions.num_steps == 8 * 2 * 3 and directions.num_episodes == 16
        first = directions.mean_return if first is None else first
        loss = agent.train(directions)
        assert float(loss.loss) == -directions.mean_return
        agent.set_progress((iteration + 1) / 60)
    assert first < -0.3 and directions.mean_return > -0.05


def test_what_fails_is_avoided_and_told():
    agent = make_agent(learning_rate=0.1, final_learning_rate=0.01, noise_std=0.2)
    runner = Runner(agent, -TARGET, reach=TARGET)
    directions = tried(agent, runner, 0)
    failed = int(np.isnan(directions.returns).sum())
    assert 0 < failed < 16 and len(directions.messages) == failed
    assert "core dumped" in directions.messages[0] and "iteration 0" in directions.messages[0]
    info = agent.train(directions).extra
    assert info.failed == failed and info.worst_return >= -TARGET
    for iteration in range(1, 40):
        directions = tried(agent, runner, iteration)
        agent.train(directions)
    assert not np.isnan(directions.returns).any()


def test_if_everything_fails_the_run_ends_with_the_reason():
    agent = make_agent()
    nothing = Directions(np.zeros((2, 3), np.int64), np.full((2, 2), np.nan), 0, 0, ("too dark",))
    with pytest.raises(UserError, match="found 2 that do: too dark"):
        agent.train(nothing)
