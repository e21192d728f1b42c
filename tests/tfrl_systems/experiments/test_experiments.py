"""The Python API: what each call refuses in one line, and that it does what the verbs do."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from environments.errors import UsageError, UserError
from tfrl_systems import experiments
from tfrl_systems.agents.table import AGENTS
from tfrl_systems.experiments import find_system, plan, system_names
from tfrl_systems.experiments.records import summary_of
from tfrl_systems.settings import fields_of

SMALL = {"num_chunks": 1, "episodes_per_chunk": 2, "hidden_sizes": (4,), "evaluate_every": 1}


REFUSED = {
    ("inlining", "world_model"): "whose policy remembers the episode",
    ("inlining", "surrogate"): "which tries single ones",
    ("tensor_graphs", "surrogate"): "which tries single ones",
}
# Settings that learn a bowl in seconds.
QUICK = {
    "ppo": {"iterations": 40, "episodes_per_chunk": 16},
    "reinforce": {"iterations": 80, "episodes_per_chunk": 16},
    "es": {"iterations": 40, "num_chunks": 8, "episodes_per_chunk": 16},
    "bc_max": {"iterations": 4, "episodes_per_chunk": 32},
    "surrogate": {"evaluations": 40, "iterations": 4},
    "world_model": {
        **{"iterations": 2, "episodes_per_chunk": 16, "memory_size": 16, "head_size": 64},
        **{"num_dreams": 256, "dream_updates": 60, "fit_updates": 100, "fit_episodes": 64},
        "num_members": 1,
    },
}


def train(tmp_path, **more):
    arguments = {"agent": "ppo", "workdir": tmp_path / "run", "iterations": 2, "settings": SMALL}
    return experiments.train("learn_to_optimize", function="sphere", **{**arguments, **more})


def test_the_three_systems_are_found_by_the_names_of_their_modules_and_explained():
    assert system_names() == ("inlining", "learn_to_optimize", "tensor_graphs")
    for name in system_names():
        system = find_system(name)
        assert system.name == name
        assert summary_of(name) and not summary_of(name).startswith(name)
        for kind in (system.problem_type, system.evaluation_type, system.bench_type):
            assert [field.name for field in fields_of(kind) if not field.explanation] == []


def test_what_is_right_for_one_function_stands_in_the_record_and_can_be_changed():
    run = plan("learn_to_optimize", agent="ppo", function="sphere", seed=3)
    assert run.settings["agent"].gamma == 0.0 and run.settings["agent"].seed == 3
    changed = plan("learn_to_optimize", agent="ppo", function="sphere", settings={"gamma": 0.5})
    assert changed.settings["agent"].gamma == 0.5
    asking = plan("learn_to_optimize", agent="ppo", function="sphere", sampler="uncertainty")
    assert asking.settings["agent"].state_dependent_std


def test_a_run_is_trained_resumed_and_evaluated(tmp_path):
    run = train(tmp_path)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == run.result
    assert train(tmp_path, resume=True).result == run.result
    evaluation = experiments.evaluate("learn_to_optimize", policies=[run.policy, "constant"])
    assert evaluation["function"] == "sphere"
    assert [policy["policy"] for policy in evaluation["policies"]] == [str(run.policy), "constant"]
    with pytest.raises(UserError, match="expected a directory without a run"):
        train(tmp_path)


@pytest.mark.parametrize(
    "more, message",
    [
        ({"agent": "q"}, "agent: expected one of ppo, .*; found 'q'"),
        ({"settings": {"speed": 1}}, "settings: expected one of the fields below, found 'speed'"),
        ({"dimension": 3}, "expected one of function, dimensions, .*; found 'dimension'"),
    ],
)
def test_a_wrong_call_says_what_there_is(tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, **more)
    assert not (tmp_path / "run" / "result.json").exists()


def test_there_is_no_such_system():
    with pytest.raises(UsageError, match="system: expected one of inlining, .*; found 'chess'"):
        experiments.evaluate("chess", policies=["random"])
    with pytest.raises(UsageError, match="expected models, found none"):
        experiments.evaluate("tensor_graphs", policies=["greedy"])


@pytest.mark.ci
def test_a_run_is_dreamed_of_beside_new_real_episodes(lent_run):
    run = lent_run("learn_to_optimize", "world_model")
    real, dreams = experiments.dream(run, seed=1)
    # Four episodes of two steps.
    assert real.reward.shape == (4, 2)
    firsts = real.observation[:, 0]
    for _ in range(4):
        first = dreams.reset().observation["latent"]
        assert any(np.allclose(first, state) for state in firsts)
    steps = [dreams.step(action) for action in real.action[0]]
    assert any(step.is_last() for step in steps) and all(np.isfinite(step.reward) for step in steps)
    again, _ = experiments.dream(run, seed=1)
    np.testing.assert_array_equal(again.reward, real.reward)
    (directory,) = (run.workdir / "tensorboard").iterdir()
    curves = EventAccumulator(str(directory)).Reload()
    assert "evaluation/errors by steps ahead" in curves.Tags()["tensors"]
    with pytest.raises(UsageError, match="expected a run of world_model, found one of ppo"):
        experiments.dream(lent_run("learn_to_optimize", "ppo"))


@pytest.mark.ci
@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda file: file.write_bytes(b"damaged"), "expected the file that training wrote"),
        (
            lambda file: shutil.rmtree(file.parent),
            "expected the checkpoint of iteration 6, found none",
        ),
    ],
)
def test_a_damaged_or_missing_checkpoint_is_not_dreamed_of(lent_run, tmp_path, spoil, words):
    run = lent_run("learn_to_optimize", "world_model")
    workdir = shutil.copytree(run.workdir, tmp_path / "run")
    last = max((workdir / "checkpoints").iterdir(), key=lambda directory: int(directory.name))
    spoil(next(last.glob("*.npz")))
    with pytest.raises(UserError, match=words):
        experiments.dream(dataclasses.replace(run, workdir=workdir))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("system", system_names())
def test_an_agent_has_settings_and_fits_or_one_line_says_why_not(system, agent):
    groups = find_system(system).settings(agent, None)
    assert {"loop", "agent"} <= groups.keys()
    for config in groups.values():
        assert [field.name for field in fields_of(config) if not field.explanation] == []
    reason = REFUSED.get((system, agent), "")
    why_not = find_system(system).why_not(agent)
    assert reason in why_not and bool(reason) == bool(why_not)
    assert "\n" not in why_not
    if why_not:
        with pytest.raises(UsageError, match=f"{system}: expected an agent"):
            plan(system, agent=agent)


@pytest.mark.parametrize(
    "agent",
    [
        *("es", "reinforce"),
        *(pytest.param(agent, marks=pytest.mark.ci) for agent in ("ppo", "bc_max", "surrogate")),
        pytest.param("world_model", marks=pytest.mark.slow),
    ],
)
def test_agents_that_learn_online_beat_chance_at_a_bowl_that_moves(agent, tmp_path):
    """The constant that is best for all c is no bowl's bottom, so it must look at c."""
    run = experiments.train(
        "learn_to_optimize",
        agent=agent,
        function="shifted_sphere",
        workdir=tmp_path / "run",
        settings={"evaluate_every": 60, "hidden_sizes": (16,), **QUICK[agent]},
        reporter=experiments.Reporter(),
    )
    evaluation = experiments.evaluate(
        "learn_to_optimize", policies=[run.policy, "constant", "random"], function="shifted_sphere"
    )
    learned, constant, chance = (policy["mse"] for policy in evaluation["policies"])
    assert learned < constant < chance


@pytest.mark.ci
def test_a_policy_names_the_class_that_loads_it(lent_run, trained):
    lent = [lent_run(system, "ppo").policy for system in ("inlining", "learn_to_optimize")]
    for directory in (trained / "policy", *lent):
        described = json.loads((directory / "policy.json").read_text())
        (name,) = [use.split("(")[0] for use in described["use"] if use.startswith("tfrl_systems.")]
        assert pkgutil.resolve_name(name)(directory)
