"""Trials by workers: a failure is an outcome, and nothing that is written down is asked again."""

from __future__ import annotations

import numpy as np

from environments.errors import UserError
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.drivers.trial_runner import TrialPool, TrialRunner
from tfrl_systems.policies.trials import Trials


def cost(points):
    if (points[:, 0] < 0).any():
        raise UserError("the simulator diverged")
    return points[:, 0] * 10


class Agent:
    """Proposes x = 0.1, 0.2, … in each iteration, and has learned from one of them."""

    points = np.array([[0.1]])

    def propose(self, count, iteration):
        return 0.1 * np.arange(1, count + 1)[:, np.newaxis]


class Log:
    """Trials in memory."""

    def __init__(self, written):
        self.written, self.appended = written, []

    def values_at(self, points):
        return [self.written.setdefault(round(point[0], 1), []) for point in points]

    def append(self, trials):
        self.appended += [round(x, 1) for x in trials.points[:, 0]]


def test_a_failure_has_no_value_and_a_message():
    runner = TrialRunner(lambda: cost)
    runner.load(np.array([[0.3], [-0.5]]))
    assert runner.run(Chunk(0, 0)).values.tolist() == [3.0]
    failed = runner.run(Chunk(0, 1))
    assert np.isnan(failed.values).all() and failed.evaluations == 1
    assert failed.messages == ("the simulator diverged",)


def test_what_is_written_down_is_not_asked_unless_it_was_learned_from():
    """0.1 was learned from in an earlier iteration; of 0.3 the value is new."""
    log = Log({0.1: [1.0], 0.3: [42.0]})
    with InProcessPool(lambda: TrialRunner(lambda: cost), Collect(), Supervision()) as runners:
        pool = TrialPool(runners, Agent(), evaluations=7, log=log)
        chunks = [Chunk(0, index) for index in range(4)]
        trials = Trials.concatenate(pool.map(chunks))
        np.testing.assert_allclose(trials.values, [1, 2, 42, 4])
        assert log.appended == [0.1, 0.2, 0.4] and trials.evaluations == 4
        # Seven in all: three are left for the second iteration, and none for the third.
        assert len(pool.map([Chunk(1, index) for index in range(4)])) == 3
        (none,) = pool.map([Chunk(2, index) for index in range(4)])
        assert none.num_steps == 0
        assert len(pool.timings.workers) == 1
