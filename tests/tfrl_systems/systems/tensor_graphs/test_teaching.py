"""What is imitated on graphs, where the best rewriting begins with steps that gain nothing."""

from __future__ import annotations

import dataclasses
import functools
import types

import numpy as np
import pytest

from environments import contexts
from environments.errors import UserError
from environments.tensor_graphs.environment import TensorGraphEnvironment
from tests.tfrl_systems import graph_problems
from tests.tfrl_systems.graph_problems import data_of, greedy_return
from tfrl_systems.agents import bc_max
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.drivers.pipes.messages import pickled, unpickled
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.tensor_graphs.teaching import Teacher, Teaching, regrets_of

SIZES = dataclasses.replace(graph_problems.SIZES, max_steps=8)


def make_environment(count=2):
    """Episodes that begin at Relu(Relu(x)), or at something that no rule changes."""
    sampler = contexts.uniform([graph_problems.relus(count)])
    return TensorGraphEnvironment(sampler, SIZES, graph_problems.RULES, graph_problems.Hill())


def make_agent(**settings):
    environment = make_environment()
    config = bc_max.Config(graph_width=8, graph_rounds=2, learning_rate=1e-2, **settings)
    return bc_max.make_agent(config, environment.time_step_spec(), environment.action_spec())


def make_teacher(actor, count=2, has_regrets=False, **settings):
    return Teacher(make_environment(count), actor, Teaching(**settings), 4, has_regrets, 1)


def teacher_of(agent, **settings):
    teacher = make_teacher(NumpyActor.from_policy(agent.collect_policy), **settings)
    teacher.load(data_of(agent))
    return teacher


def listed(experience, step):
    """Rule and share of the actions that a lesson's step may take."""
    seen, shares = experience.trajectory.observation, experience.trajectory.policy_info["targets"]
    names = [rule.name for rule in graph_problems.RULES]
    return [
        (names[seen["actions"][0, step, row, 0]], float(shares[0, step, row]))
        for row in np.flatnonzero(shares[0, step])
    ]


def test_the_best_path_is_the_lesson_and_its_order_is_free():
    """Both Relus are lifted and dropped, 4 ms to 2. A lift of either is as good a beginning."""
    lessons = teacher_of(make_agent()).run(Chunk(0, 0))
    assert [name.split()[0] for name in lessons.contexts] == ["relus-2"]
    assert lessons.info["cost"].tolist() == [2000]
    assert np.isnan(lessons.info["learned_cost"]).all() and lessons.num_steps == 4
    assert listed(lessons, 0) == [("lift", 0.5), ("lift", 0.5)]
    rules = [{name for name, _ in listed(lessons, step)} for step in range(4)]
    assert rules[-1] == {"drop"} and all(names <= {"lift", "drop"} for names in rules)


def test_other_steps_cost_what_the_engine_says():
    """At first both slips are not wanted: each saves 0.2 of 4 ms. Later slips save as much of less.

    To stop forgoes what the path still saves: half at first, which counts as 10%, the most. No step
    of these rules makes a graph dearer, so a rule that does is added here.
    """
    lessons = teacher_of(make_agent(), has_regrets=True).run(Chunk(0, 0)).trajectory
    assert not lessons.policy_info["regrets"][..., 1:].any()
    assert lessons.policy_info["regrets"][0, :, 0].tolist() == [10] * 4
    environment = make_environment()
    environment.reset()
    seen = {"action_mask": np.array([True] * 3), "actions": np.array([[0, 0], [1, 0], [3, 0]])}

    class Dearer:
        """Of which slip costs 0.1 of 2 ms, lift 1 of 2 ms, and nothing else exists."""

        def change_ms(self, state, signatures, match):
            return {"slip": 0.1, "lift": 1.0}[match]

    class State:
        graph, cost_ms, matches_by_rule = environment.state.graph, 2.0, [["slip"], ["lift"], []]

    regrets = regrets_of(State, seen, np.zeros(3, np.float32), Dearer(), 4.0)
    np.testing.assert_allclose(regrets, [5, 10, 0], rtol=1e-6)
    wanted = np.array([1, 0, 0], np.float32)
    np.testing.assert_allclose(regrets_of(State, seen, wanted, Dearer(), 4.0), [0, 10, 0])


@pytest.mark.ci
def test_a_clone_plays_the_best_path_that_greedy_steps_miss():
    agent = make_agent(updates=60)
    teacher = teacher_of(agent)
    for iteration in range(2):
        teacher.load(data_of(agent))
        experience = teacher.run(Chunk(iteration, 0))
        agent.train(experience)
    # The clone of iteration 0 was played in iteration 1, and left nothing to gain.
    assert experience.info["learned_cost"].tolist() == [2000]
    actor = NumpyActor.from_policy(agent.collect_policy)
    actor.load(data_of(agent))
    assert greedy_return(actor.network) == pytest.approx(graph_problems.BEST_RETURN)


def test_where_the_policy_gives_up_a_search_goes_on():
    """A policy that slips once ends with 3.8 ms of 4, from where one lift and drop are left."""

    class Slips:
        """Takes the last Relu's slip and ends there, because nothing is drawn any more."""

        def new_episode(self):
            return self

        def begin(self, is_first=None):
            pass

        def remember(self, action):
            pass

        def parameters(self, observation):
            rules = observation["actions"][..., 0]
            logits = np.where(rules == 0, 5.0, np.where(rules == 1, 0.0, -5.0))
            mask = observation["action_mask"]
            return {"logits": np.where(mask, logits, -np.inf), "actions": observation["actions"]}

    lessons = make_teacher(types.SimpleNamespace(network=Slips()), explored=0).run(Chunk(1, 0))
    # It slips twice: 3.6 ms, and no rule matches any more, so there is no second lesson.
    assert [name.split()[0] for name in lessons.contexts] == ["relus-2"]
    np.testing.assert_allclose(lessons.info["learned_cost"], [3600])
    np.testing.assert_allclose(lessons.info["cost"], [2000])


def test_teachers_that_are_made_elsewhere_teach_the_same():
    """Each of two teaches one chunk, the last one first, as two workers would."""
    agent = make_agent()
    chunks = [Chunk(iteration, 0) for iteration in (0, 1)]
    teacher = teacher_of(agent)
    expected = [teacher.run(chunk).sha256() for chunk in chunks]
    hashes = []
    for chunk in reversed(chunks):
        actor = NumpyActor.from_policy(agent.collect_policy)
        teacher = unpickled(pickled(functools.partial(make_teacher, actor)))()
        teacher.load(data_of(agent))
        hashes.append(teacher.run(chunk).sha256())
    assert hashes[::-1] == expected


def test_models_that_nobody_can_improve_end_a_chunk_and_wrong_settings_are_named():
    teacher = teacher_of(make_agent(), count=0)
    with pytest.raises(ValueError, match="expected a model that a search makes cheaper"):
        teacher.run(Chunk(0, 0))
    for field, value in {"teachers": ("best",), "teacher_expansions": 0, "explored": -1}.items():
        with pytest.raises(UserError, match=f"{field}: expected"):
            Teaching(**{field: value})
