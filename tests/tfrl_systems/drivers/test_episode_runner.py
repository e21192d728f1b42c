"""A chunk's episodes, against paper, and against each other when played side by side."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.drivers.countdowns import LENGTHS, Countdown, Countdowns, Parity
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk

NUM_EPISODES = len(LENGTHS)


def make_alone(seed=0):
    return Countdown(seed)


def make_batch(seed=0):
    return Countdowns(NUM_EPISODES, seed)


@pytest.fixture(params=[make_alone, make_batch], ids=["alone", "batched"])
def make_environment(request):
    return request.param


def test_a_chunk_on_paper(make_environment):
    """Algorithm 5.2 of Mayer's thesis: rows of (state, action, reward, next state), by episode.

    The episodes have 2, 1, 3, 1 and 2 steps; with an odd number left the action is 1, else 0.
    """
    runner = EpisodeRunner([make_environment()], Parity(), NUM_EPISODES)
    experience = runner.run(Chunk(0, 0))
    steps = experience.trajectory
    np.testing.assert_array_equal(
        steps.observation["left"], [[2, 1, 1], [1, 1, 1], [3, 2, 1], [1, 1, 1], [2, 1, 1]]
    )
    np.testing.assert_array_equal(
        steps.step_type, [[0, 1, 2], [0, 2, 2], [0, 1, 1], [0, 2, 2], [0, 1, 2]]
    )
    np.testing.assert_array_equal(
        steps.next_step_type, [[1, 2, 0], [2, 0, 0], [1, 1, 2], [2, 0, 0], [1, 2, 0]]
    )
    np.testing.assert_array_equal(
        steps.action, [[0, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]]
    )
    np.testing.assert_array_equal(
        steps.reward, [[0, 1, 0], [1, 0, 0], [3, 0, 1], [1, 0, 0], [0, 1, 0]]
    )
    np.testing.assert_array_equal(
        steps.discount, [[0.5, 0, 1], [0, 1, 1], [0.5, 0.5, 0], [0, 1, 1], [0.5, 0, 1]]
    )
    assert steps.observation["noise"].shape == (5, 3, 2)
    assert steps.policy_info["dist_params"]["logits"].shape == (5, 3, 2)
    assert steps.step_type.dtype == np.int32 and steps.reward.dtype == np.float32
    assert list(experience.contexts) == [f"{length} steps" for length in LENGTHS]
    np.testing.assert_array_equal(experience.info["total"], [1, 1, 4, 1, 1])
    assert (experience.num_episodes, experience.num_steps) == (5, sum(LENGTHS))
    assert experience.mean_return == 8 / 5


def test_side_by_side_is_one_after_another_to_the_bit():
    actors = Parity(), Parity()
    alone = EpisodeRunner([make_alone()], actors[0], NUM_EPISODES)
    batch = EpisodeRunner([make_batch()], actors[1], NUM_EPISODES)
    for chunk in (Chunk(0, 0), Chunk(7, 3, 2)):
        assert alone.run(chunk).sha256() == batch.run(chunk).sha256()
    # One call for each time step, always for the whole batch.
    assert actors[1].batch_sizes == [NUM_EPISODES] * 2 * max(LENGTHS)
    assert actors[0].batch_sizes == [1] * 2 * sum(LENGTHS)


def test_the_chunk_and_the_data_decide_everything(make_environment):
    def make_runner():
        return EpisodeRunner([make_environment()], Parity(is_random=True), NUM_EPISODES)

    runner = make_runner()
    first = runner.run(Chunk(3, 1, 5))
    for chunk in (Chunk(3, 2, 5), Chunk(4, 1, 5), Chunk(3, 1, 6)):
        assert runner.run(chunk).sha256() != first.sha256()
    assert runner.run(Chunk(3, 1, 5)).sha256() == first.sha256()
    assert make_runner().run(Chunk(3, 1, 5)).sha256() == first.sha256()
    # A share of the chunks is all of them where there is one environment.
    assert runner.run(Chunk(3, 1, 5, 8)).sha256() == first.sha256()
    runner.load(b"1")
    np.testing.assert_array_equal(
        runner.run(Chunk(3, 1, 5)).trajectory.action, first.trajectory.action + 1
    )


def test_another_attempt_draws_other_actions_in_the_same_contexts(make_environment):
    runner = EpisodeRunner([make_environment()], Parity(is_random=True), NUM_EPISODES)
    played = [runner.run(Chunk(3, 1, 5), attempt) for attempt in (0, 1, 2, 1)]
    for experience in played[1:]:
        np.testing.assert_array_equal(experience.contexts, played[0].contexts)
        np.testing.assert_array_equal(
            experience.trajectory.observation["noise"], played[0].trajectory.observation["noise"]
        )
    assert len({experience.sha256() for experience in played}) == 3
    assert played[1].sha256() == played[3].sha256()


def test_a_chunk_is_not_disturbed_by_one_that_was_interrupted(make_environment):
    class Failing(Parity):
        def act(self, time_step, generator):
            if len(self.batch_sizes) == 2:
                self.batch_sizes.append(0)
                raise ValueError("once")
            return super().act(time_step, generator)

    sound = EpisodeRunner([make_environment()], Parity(), NUM_EPISODES).run(Chunk(0, 0))
    runner = EpisodeRunner([make_environment()], Failing(), NUM_EPISODES)
    with pytest.raises(ValueError, match="once"):
        runner.run(Chunk(0, 0))
    assert runner.run(Chunk(0, 0)).sha256() == sound.sha256()


def test_each_environment_has_its_share_of_the_chunks():
    """Mayer's thesis, 5.3.4, where four chunks of an iteration meet three samplers.

    Chunks 0 to 11 of the run are played in environments 0, 1, 2, 0, 1, 2, ...: four in each.
    """

    class Marked(Countdown):
        def __init__(self, mark):
            super().__init__()
            self._mark = mark

        def get_info(self):
            return {**super().get_info(), "mark": self._mark}

    environments = [Marked(mark) for mark in range(3)]
    runner = EpisodeRunner(environments, Parity(), 2)
    marks = [
        [
            runner.run(Chunk(iteration, index, 0, 4 * iteration)).info["mark"][0]
            for index in range(4)
        ]
        for iteration in range(3)
    ]
    assert marks == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]
    runner.close()
    assert all(environment.is_closed for environment in environments)


def test_what_a_runner_cannot_play_is_said_at_once():
    with pytest.raises(UserError, match="collection: expected an environment, found none"):
        EpisodeRunner([], Parity(), 4)
    with pytest.raises(UserError, match="expected environments with batches of 4.*found 5"):
        EpisodeRunner([make_alone(), make_batch()], Parity(), 4)

    seedless = make_alone()
    seedless.seed = super(Countdown, seedless).seed
    with pytest.raises(UserError, match=r"Countdown: expected a method seed\(int\).*found none"):
        EpisodeRunner([seedless], Parity(), 4).run(Chunk(0, 0))


def test_an_action_may_be_of_any_structure():
    """What is recorded is what came, with the structure that it came in."""

    class Structured(Parity):
        def act(self, time_step, generator):
            acted = super().act(time_step, generator)
            return acted._replace(info=(acted.action, {"a": [acted.action, acted.action]}))

    for make in (make_alone, make_batch):
        runner = EpisodeRunner([make()], Structured(), NUM_EPISODES)
        steps = runner.run(Chunk(0, 0)).trajectory
        first, rest = steps.policy_info
        np.testing.assert_array_equal(first, steps.action)
        np.testing.assert_array_equal(rest["a"][1], steps.action)


def test_an_episode_without_steps_is_named():
    class Ended(Countdown):
        def _reset(self):
            return super()._reset()._replace(step_type=np.array(2, np.int32))

        def get_info(self):
            return {"context": "a/b"}

    with pytest.raises(ValueError, match="episode of 'a/b': expected steps, found none"):
        EpisodeRunner([Ended()], Parity(), 4).run(Chunk(0, 0))
