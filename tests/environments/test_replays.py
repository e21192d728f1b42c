"""A replay is equal to the bit on any stack, or tells the first difference."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.errors import UserError
from environments.recording import Recorder
from environments.replays import Difference, replay
from environments.trajectories import Trajectory, versions
from tests.environments.learn_to_optimize.user_modules import write_module
from tests.environments.small_episodes import GOLDEN, SYSTEMS, write_corpus
from tests.environments.tensor_graphs.small_models import adapter, write


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("replayed") / "corpus")


@pytest.fixture
def golden(corpus):
    """The trajectory of a system in `golden/`, as if it was made in this place and stack."""

    def load(system):
        trajectory = Trajectory.load(GOLDEN / f"{system}.json")
        settings = dict(trajectory.settings)
        if system == "inlining":
            settings["corpus"] = str(corpus)
        return dataclasses.replace(trajectory, settings=settings, versions=versions())

    return load


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_the_default_stack_has_saved_is_equal_here(system, corpus):
    """Made in another process, and maybe on the other stack."""
    trajectory = Trajectory.load(GOLDEN / f"{system}.json")
    overrides = {"corpus": corpus} if system == "inlining" else {}
    assert replay(trajectory, **overrides) is None


def changed(values, index, value):
    """A tuple with one value changed."""
    return (*values[:index], value, *values[index + 1 :])


def test_the_next_float32_is_another_reward(golden):
    trajectory = golden("learn_to_optimize")
    for index, reward in enumerate(trajectory.rewards):
        forged = float(np.nextafter(np.float32(reward), np.float32(9)))
        rewards = changed(trajectory.rewards, index, forged)
        difference = replay(dataclasses.replace(trajectory, rewards=rewards))
        assert difference == Difference(index + 1, "reward", str(forged), str(reward))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_changed_observation_is_told(system, golden):
    trajectory = golden(system)
    for index in (0, len(trajectory.actions)):
        observations = changed(trajectory.observations, index, "0" * 16)
        forged = dataclasses.replace(trajectory, observations=observations)
        assert replay(forged) == Difference(
            index, "observation", "0" * 16, trajectory.observations[index]
        )


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_changed_action_is_noticed_at_its_step(system, golden):
    """Of the inlining module the second call is as good as the first, yet seen otherwise."""
    trajectory = golden(system)
    action = {"inlining": 1, "learn_to_optimize": (0.5, 0.5), "tensor_graphs": 0}[system]
    forged = dataclasses.replace(trajectory, actions=changed(trajectory.actions, 1, action))
    difference = replay(forged)
    assert difference.step == 2 and difference.what in ("reward", "observation")


@pytest.mark.parametrize(
    ("system", "action", "message"),
    [
        ("inlining", 2, "action: expected 0 to 1, found 2; give one of them"),
        ("inlining", (0.5,), "a number is needed, and not a vector"),
        ("learn_to_optimize", 1, "a vector of the shape (2,) is needed"),
    ],
)
def test_an_impossible_action_is_told(system, action, message, golden):
    trajectory = golden(system)
    forged = dataclasses.replace(trajectory, actions=changed(trajectory.actions, 2, action))
    difference = replay(forged)
    assert (difference.step, difference.what) == (3, "action")
    assert difference.saved == f"{action}, which is possible"
    assert message in difference.played


def test_an_end_that_comes_earlier_or_later_is_told(golden):
    trajectory = golden("learn_to_optimize")
    num_steps = len(trajectory.actions)
    fields = ("actions", "rewards", "observations")
    shorter = {name: getattr(trajectory, name)[:-1] for name in fields}
    longer = {name: (*getattr(trajectory, name), getattr(trajectory, name)[0]) for name in fields}
    unfinished = {"is_finished": False, "info": {}}
    forged = [dataclasses.replace(trajectory, **part) for part in (shorter, longer, unfinished)]
    assert list(map(replay, forged)) == [
        Difference(num_steps - 1, "end", "here", "later"),
        *[Difference(num_steps, "end", "later", "here")] * 2,
    ]


def test_results_are_compared(golden):
    trajectory = golden("inlining")
    larger = {**trajectory.info, "size_bytes": 412}
    fewer = {name: value for name, value in trajectory.info.items() if name != "decisions"}
    assert [replay(dataclasses.replace(trajectory, info=info)) for info in (larger, fewer)] == [
        Difference(7, "size_bytes", "412", "413"),
        Difference(7, "decisions", "nothing", "7"),
    ]
    # The last bits of a float64 do not count: libraries for other processors sum otherwise.
    trajectory = golden("learn_to_optimize")
    cost = trajectory.info["cost"]
    for factor, is_equal in ((1 + 1e-15, True), (1 + 1e-8, False)):
        info = {**trajectory.info, "cost": cost * factor}
        assert cost != cost * factor
        assert (replay(dataclasses.replace(trajectory, info=info)) is None) == is_equal


def test_versions_that_differ_are_told_with_a_difference(golden):
    trajectory = golden("learn_to_optimize")
    elsewhere = {**trajectory.versions, "numpy": "1.0", "onnx": ""}
    forged = dataclasses.replace(trajectory, rewards=(0.5, 0.0, 0.0, 0.0), versions=elsewhere)
    assert str(replay(forged)) == (
        f"step 1: expected reward 0.5, found {trajectory.rewards[0]} (made with numpy 1.0, here "
        f"{np.__version__}; made with onnx not installed, here {versions()['onnx']})"
    )
    assert replay(dataclasses.replace(trajectory, versions=elsewhere)) is None


def test_a_model_may_lie_elsewhere(tmp_path):
    """What it holds counts, not its name."""
    here, there, changed_there = (tmp_path / f"{name}.onnx" for name in ("a", "b", "c"))
    write(here, adapter())
    write(there, adapter())
    write(changed_there, adapter(rank=95))
    recorder = Recorder("tensor_graphs", models=[here], objective="analytic", max_steps=1)
    recorder.reset()
    recorder.step(0)
    recorder.save_trajectory(tmp_path / "mine.json")
    trajectory = Trajectory.load(tmp_path / "mine.json")
    assert replay(trajectory) is None
    assert replay(trajectory, models=[there], context=str(there)) is None
    difference = replay(trajectory, models=[changed_there], context=str(changed_there))
    assert (difference.step, difference.what) == (0, "context with the digest")


def test_a_missing_corpus_or_context_is_an_error(golden, tmp_path):
    trajectory = golden("inlining")
    with pytest.raises(UserError, match="expected a corpus directory, found none"):
        replay(trajectory, corpus=tmp_path / "nowhere")
    with pytest.raises(UserError, match="found 'small/none.c'; similar: "):
        replay(dataclasses.replace(trajectory, context="small/none.c"))


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("chess", {}),
        ("learn_to_optimize", {"function": 7}),
        ("learn_to_optimize", {"no_such": 1}),
        ("learn_to_optimize", {"episode_length": [1]}),
        ("tensor_graphs", {"models": ["transformers:7"], "rules": 5}),
        ("tensor_graphs", {"models": ["transformers:7"], "objective": {"a": 1}}),
        ("inlining", {"corpus": ["a"]}),
    ],
)
def test_settings_of_wrong_types_are_an_error_in_one_line(system, settings, golden):
    trajectory = dataclasses.replace(
        golden("learn_to_optimize"), system=system, settings=settings, context="0 0 0"
    )
    with pytest.raises(UserError) as caught:
        replay(trajectory)
    assert len(str(caught.value).splitlines()) == 1


def test_what_a_file_names_is_not_run_unless_the_user_names_it(golden, tmp_path, monkeypatch):
    marker = tmp_path / "imported"
    touch = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    name = write_module(tmp_path, f"{touch}def bowl(points): return (points**2).sum(axis=1)")
    monkeypatch.syspath_prepend(tmp_path)
    trajectory = golden("learn_to_optimize")
    settings = {**trajectory.settings, "function": f"{name}:bowl"}
    forged = dataclasses.replace(trajectory, settings=settings)
    with pytest.raises(UserError, match=f"function of this package, found '{name}:bowl'"):
        replay(forged)
    assert not marker.exists()
    replay(forged, function=f"{name}:bowl")
    assert marker.exists()
    trajectory = golden("inlining")
    settings = {**trajectory.settings, "compiler": "/bin/false"}
    with pytest.raises(UserError, match="compiler of this package, found"):
        replay(dataclasses.replace(trajectory, settings=settings))
