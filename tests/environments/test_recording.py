"""A recorder notes what was played, forks with its environment, and saves what can be replayed."""

from __future__ import annotations

import contextlib
import pathlib

import numpy as np
import pytest
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

import environments
from environments import trajectories
from environments.errors import UserError
from environments.learn_to_optimize.settings import Settings
from environments.recording import Recorder
from environments.replays import replay
from environments.trajectories import Trajectory, digest_of
from tests.environments.learn_to_optimize.user_modules import write_module
from tests.environments.small_episodes import SYSTEMS, play, write_corpus

SPHERE = {"function": "sphere", "dimensions": 2, "free": 1, "episode_length": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("recorded") / "corpus")


def save(recorder, directory, author=""):
    recorder.save_trajectory(directory / "mine.json", author)
    return Trajectory.load(directory / "mine.json")


def test_an_episode_by_hand(tmp_path):
    """The sphere at (0.5, 0) is (5.12 / 2)^2 = 6.5536; at (0, 0) it is 0, at (-0.25, 0) 1.6384."""
    recorder = Recorder("learn_to_optimize", **SPHERE)
    recorder.reset_at([0.5, 0.0])
    recorder.step(np.array([0], np.float32))
    recorder.step(np.array([-0.25], np.float32))
    trajectory = save(recorder, tmp_path, "me")
    points = [np.array(point, np.float32) for point in ([0.5, 0], [0, 0], [-0.25, 0])]
    assert trajectory == Trajectory(
        system="learn_to_optimize",
        settings=SPHERE,
        context="0.5 0.0",
        digest="",
        actions=((0.0,), (-0.25,)),
        rewards=(float(np.float32(6.5536)), float(np.float32(-1.6384))),
        observations=tuple(map(digest_of, points)),
        is_finished=True,
        info={"context": "0.5 0.0", "cost": pytest.approx(1.6384), "start_cost": 6.5536},
        author="me",
        versions=trajectories.versions(),
    )


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_is_recorded_as_it_was_played(system, is_finished, corpus, tmp_path):
    """A whole episode, or two steps of it."""
    with contextlib.closing(play(system, corpus, 100 if is_finished else 2)) as recorder:
        trajectory = save(recorder, tmp_path)
        last = recorder.current_time_step()
        assert trajectory.info == (recorder.get_info() if is_finished else {})
    assert trajectory.is_finished is is_finished
    assert trajectory.observations[-1] == digest_of(last.observation)
    assert trajectory.rewards[-1] == last.reward
    assert replay(trajectory) is None


def test_paths_and_tuples_become_what_json_has(corpus, tmp_path):
    recorder = Recorder("inlining", corpus=corpus, seed=3)
    recorder.reset()
    assert save(recorder, tmp_path).settings == {"corpus": str(corpus), "seed": 3}
    recorder.close()
    models = {"models": (pathlib.Path("transformers:7"),), "objective": "analytic"}
    recorder = Recorder("tensor_graphs", **models)
    recorder.reset()
    assert save(recorder, tmp_path).settings == {
        "models": ["transformers:7"],
        "objective": "analytic",
    }


def test_ones_own_function_is_told_by_its_source(tmp_path, monkeypatch):
    """Its bounds are saved in whichever form they came."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "def cost(points):\n    return points[:, 0] ** 2 + {}\n"
    functions = [f"{write_module(tmp_path, text.format(number))}:cost" for number in (0, 1)]
    bounds = {"low": [-2, -1], "high": (2, 1)}
    recorder = Recorder("learn_to_optimize", **{**SPHERE, "function": functions[0]}, bounds=bounds)
    recorder.reset_at([0.5, 0.0])
    recorder.step(np.array([0], np.float32))
    trajectory = save(recorder, tmp_path)
    assert trajectory.settings["bounds"] == {"low": [-2, -1], "high": [2, 1]}
    # 0.5 stands for 1, so that the value falls from 1 to 0.
    assert trajectory.rewards == (1.0,)
    assert replay(trajectory, function=functions[0]) is None
    difference = replay(trajectory, function=functions[1])
    assert (difference.step, difference.what) == (0, "context with the digest")


def draw(generator, count):
    return np.zeros((count, 2), np.float32)


@pytest.mark.parametrize(
    ("name", "value", "kind"), [("sampler", draw, "function"), ("settings", Settings(), "Settings")]
)
def test_a_setting_that_no_file_holds_is_named(name, value, kind, tmp_path):
    recorder = Recorder("learn_to_optimize", function="sphere", **{name: value})
    recorder.reset()
    with pytest.raises(UserError, match=f"setting {name}: expected text, .* found {kind}; make"):
        recorder.save_trajectory(tmp_path / "mine.json")
    assert not (tmp_path / "mine.json").exists()


def test_an_episode_that_begins_between_models_is_not_saved(tmp_path):
    settings = {
        "models": ["transformers:7"],
        "objective": "analytic",
        "random_steps": 2,
        "max_locations": 16,
    }
    recorder = Recorder("tensor_graphs", **settings)
    starts = {}
    for _ in range(12):
        recorder.reset()
        recorder.step(recorder.num_actions - 16)  # NO-OP
        starts[recorder.get_info()["context"]] = None
        if recorder.get_info()["context"] == "transformers:7":
            assert replay(save(recorder, tmp_path)) is None
        else:
            with pytest.raises(UserError, match="begins at a context with a name"):
                recorder.save_trajectory(tmp_path / "mine.json")
    assert "transformers:7" in starts and len(starts) > 1


def test_the_next_episode_takes_the_place_of_the_last(tmp_path):
    """Also where the environment begins it by itself, after the end."""
    recorder = Recorder("learn_to_optimize", seed=1, **SPHERE)
    recorder.reset_at([0.5, 0.0])
    action = np.array([0.25], np.float32)
    steps = [recorder.step(action) for _ in range(4)]
    assert [bool(step.is_first()) for step in steps] == [False, False, True, False]
    trajectory = save(recorder, tmp_path)
    assert trajectory.actions == ((0.25,),) and trajectory.context != "0.5 0.0"
    assert replay(trajectory) is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_forks_are_recorded_each_for_itself(system, corpus, tmp_path):
    with contextlib.closing(play(system, corpus, num_steps=1)) as recorder:
        spec = recorder.action_spec()
        with contextlib.closing(recorder.fork()) as twin:
            twin.step(np.full(spec.shape, spec.minimum, spec.dtype))
            both = save(twin, tmp_path)
        assert len(save(recorder, tmp_path).actions) == 1
    assert len(both.actions) == 2
    assert replay(both) is None


def test_an_environment_of_gymnasium_saves_the_same(tmp_path):
    from environments.gymnasium.environment import SystemEnvironment

    environment = SystemEnvironment("learn_to_optimize", **SPHERE)
    environment.reset(options={"context": "0.5 0.0"})
    environment.step(np.array([0.25], np.float32))
    trajectory = save(environment, tmp_path, author="me")
    assert (trajectory.author, trajectory.actions) == ("me", ((0.25,),))
    assert replay(trajectory) is None


def test_nothing_is_saved_before_an_episode(tmp_path):
    recorder = Recorder("learn_to_optimize", **SPHERE)
    assert not recorder.has_episode
    with pytest.raises(UserError, match="expected an episode, found none; call reset first"):
        recorder.save_trajectory(tmp_path / "mine.json")
    recorder.reset()
    assert recorder.has_episode
    with pytest.raises(UserError, match="expected a directory"):
        recorder.save_trajectory(tmp_path / "nowhere" / "mine.json")


def test_batches_are_refused():
    with pytest.raises(UserError, match="expected one episode at a time to record, found 3"):
        Recorder("learn_to_optimize", batch_size=3, **SPHERE)


def test_without_contexts_by_name_nothing_is_saved(monkeypatch, tmp_path):
    class Bare:
        batched = False

        def reset(self):
            return ts.restart(np.zeros(1, np.float32))

        def observation_spec(self):
            return array_spec.ArraySpec((1,), np.float32)

        def action_spec(self):
            return array_spec.BoundedArraySpec((), np.int64, 0, 1)

    monkeypatch.setattr(environments, "make", lambda system: Bare())
    recorder = Recorder("bare")
    assert recorder.reset().is_first()
    with pytest.raises(UserError, match="bare: expected an environment that can begin"):
        recorder.save_trajectory(tmp_path / "mine.json")
