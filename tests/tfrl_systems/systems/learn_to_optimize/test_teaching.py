"""What is imitated on functions: the best answer of anyone, for each c."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.levels import measure_levels
from environments.learn_to_optimize.settings import Settings
from tests.tfrl_systems.double_well import double_well
from tfrl_systems.agents import bc_max
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.learn_to_optimize.problem import Problem
from tfrl_systems.systems.learn_to_optimize.teaching import Teacher, Teaching, make_teacher

PROBLEM = Problem(function=double_well)


def taught(iteration: int, **teaching):
    (environment,) = PROBLEM.make_environments(Settings())
    agent = bc_max.make_agent(
        bc_max.Config(hidden_sizes=(4,)), environment.time_step_spec(), environment.action_spec()
    )
    actor = NumpyActor.from_policy(agent.collect_policy)
    levels = measure_levels(PROBLEM.make_objective(), Settings())
    teacher = make_teacher(PROBLEM, Settings(), 16, actor, levels, Teaching(**teaching))
    teacher.load(variables.to_bytes(agent.collect_policy.variables(), iteration))
    return teacher.run(Chunk(iteration, 0))


def test_each_answer_is_the_best_of_all():
    """The left well is deeper for every c; descents from drawn answers find it, scipy may not."""
    alone = taught(1, teachers=("random",), explored=0, descent_rounds=0)
    lessons = taught(1, teachers=("scipy", "random"), explored=8)
    assert np.all(lessons.trajectory.action < 0)
    c = lessons.trajectory.observation[:, 0, 1]
    x = lessons.trajectory.action[:, 0, 0].astype(np.float64)
    np.testing.assert_allclose(lessons.info["cost"], double_well(np.stack([x, c], 1)), atol=1e-6)
    # 4 x (x² - 1/4) + 1/10 = 0 at the bottom.
    np.testing.assert_allclose(4 * x * (x**2 - 0.25), -0.1, atol=1e-3)
    assert np.all(lessons.info["cost"] <= lessons.info["learned_cost"])
    assert np.all(lessons.info["cost"] <= alone.info["cost"] + 1e-9)


def test_before_the_first_iteration_only_teachers_answer():
    lessons = taught(0, teachers=("random",))
    assert np.isnan(lessons.info["learned_cost"]).all()
    assert lessons.num_steps == 16
    # One evaluation of what the teacher says, one where the environment starts, one of its step.
    assert lessons.evaluations == 3 * 16


def test_samplers_take_turns_over_the_run():
    """Two iterations of four chunks, 0 to 7 of the run, and three samplers."""

    def make_sampler(c):
        return lambda generator, count: np.full((count, 2), c)

    environments = [
        LearnToOptimizeEnvironment("sphere", sampler=make_sampler(c), batch_size=2)
        for c in (0.25, 0.5, 0.75)
    ]
    # The first lessons do not ask the policy.
    teacher = Teacher(environments, None, Teaching(teachers=("random",)))
    chunks = [[Chunk(0, index, 0, earlier) for index in range(4)] for earlier in (0, 4)]
    drawn = [[teacher.run(chunk).contexts[0, 1] for chunk in part] for part in chunks]
    assert drawn == [[0.25, 0.5, 0.75, 0.25], [0.5, 0.75, 0.25, 0.5]]


@pytest.mark.parametrize("name", ["best", "constant"])
def test_who_cannot_teach_is_named(name):
    with pytest.raises(UserError, match=f"teachers: expected some of random, .*found '{name}'"):
        Teaching(teachers=(name,))
