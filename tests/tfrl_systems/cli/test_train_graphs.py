"""Policies that rewrite graphs: learned, compared, and used, from the command line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.models import families
from tests.environments.tensor_graphs.small_models import adapter, relu, write
from tests.tfrl_systems.cli.test_train import FIELDS, read_result
from tests.tfrl_systems.conftest import as_words
from tests.tfrl_systems.small_runs import GRAPHS
from tests.tfrl_systems.training.test_curves import picture, read, scalar
from tfrl_systems.systems.tensor_graphs import learning


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    return write(directory / "adapter.onnx", adapter()), write(directory / "relu.onnx", relu())


@pytest.fixture
def train(tfrl):
    def run(workdir, models, *more, agent="ppo", **settings):
        words = [word for model in models for word in ("--model", model)]
        words += as_words(**{**GRAPHS, **settings})
        return tfrl(
            *("train", "tensor_graphs", "--agent", agent, "--objective", "analytic"),
            *("--workdir", workdir, *words, *more, "--json"),
        )

    return run


@pytest.mark.ci
def test_what_is_told_of_several_models(train, models, tmp_path):
    ran = train(tmp_path / "run", models, "--iterations", 2, "--collect", "inprocess")
    result = ran.result
    assert result == read_result(tmp_path / "run") and result.keys() >= FIELDS
    last = result["evaluation"]["last"]
    names = [str(model) for model in models]
    assert last.keys() == {
        "cost",
        *(f"{what}/{name}" for what in ("cost", "steps") for name in names),
    }
    assert last["cost"] == pytest.approx((last[f"cost/{names[0]}"] + last[f"cost/{names[1]}"]) / 2)
    # Nothing can be done about the second one.
    assert last[f"cost/{names[1]}"] == 1.0
    # What was learned on several models is for others, too.
    assert json.loads((tmp_path / "run" / "policy" / "policy.json").read_text())["max_logit"] == 4
    check_curves(tmp_path / "run", result, names)


def check_curves(workdir, result, names):
    """TensorBoard shows what the result says; the only evaluation is that after iteration 2."""
    events = read(workdir / "tensorboard" / workdir.name)
    (learned,) = result["training"]
    assert 1 <= learned["steps_per_episode"] <= GRAPHS["max_steps"]

    def shown(tag):
        (event,) = events.Tensors(tag)
        return scalar(event)

    for name in ("steps_per_episode", "mean_return"):
        assert shown(f"train/{name}") == pytest.approx(learned[name], rel=1e-5)
    assert 0 < shown("train/entropy") < np.log(GRAPHS["max_actions"])
    assert shown("train/entropy_regularization_loss") < 0 < shown("train/value_estimation_loss")
    for name in ("cost", *(f"cost/{model}" for model in names)):
        assert shown(f"best/{name}") == shown(f"evaluation/{name}")
        assert shown(f"best/{name}") == pytest.approx(result["evaluation"]["last"][name])
    (event,) = events.Tensors("evaluation/rules")
    assert event.step == 2 and picture(event).shape[2] == 3


@pytest.mark.ci
def test_what_was_learned_is_compared_and_used(lent_run, models, tfrl, tmp_path):
    """Folding W + A·B saves more than half; a short training finds it, and a policy keeps it."""
    policy = lent_run("tensor_graphs", "ppo").policy
    described = json.loads((policy / "policy.json").read_text())
    assert described["kind"] == "graph_actor" and described["max_logit"] == 0
    arguments = ("evaluate", "tensor_graphs", "--model", models[0], "--objective", "analytic")
    names = (policy, "greedy", f"regions:{policy}")
    compared = [word for name in names for word in ("--policy", name)]
    ran = tfrl(*arguments, *compared, "--rollouts", 4, "--json")
    (comparison,) = ran.result["models"]
    learned, greedy, led = comparison["policies"]
    assert led["policy"] == f"regions:{policy}" and led["stopped"] == "exhausted"
    assert led["estimated_ms_after"] <= learned["estimated_ms_after"]
    assert learned["policy"] == str(policy) and learned["steps"] == len(learned["substitutions"])
    assert learned["estimated_ms_after"] < 0.7 * comparison["estimated_ms_before"]
    assert learned["estimated_ms_after"] <= 1.05 * greedy["estimated_ms_after"]
    ran = tfrl(
        *("optimize", models[0], "-o", tmp_path / "fast.onnx", "--method", "policy"),
        *("--policy", policy, "--rollouts", 2, "--objective", "analytic", "--no-measure", "--json"),
    )
    assert ran.result["method"] == "policy" and ran.result["gain"] is True
    assert ran.result["max_relative_error"] < 1e-4
    onnx.checker.check_model(onnx.load(tmp_path / "fast.onnx"))
    ran = tfrl(*arguments, "--policy", of_other_features(policy, tmp_path / "older"))
    assert ran.status == 1 and "vocabulary" in ran.err and "train again" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.ci
def test_a_world_model_is_learned_and_used(train, models, tfrl, tmp_path):
    """Its controller acts with the real masks; it knows the rules by their numbers."""
    dreaming = {
        **{"num_members": 1, "memory_size": 16, "head_size": 16, "graph_block": "full"},
        **{"num_dreams": 16, "dream_updates": 2, "fit_updates": 3, "fit_episodes": 2},
    }
    ran = train(tmp_path / "run", models[:1], "--iterations", 2, agent="world_model", **dreaming)
    summary = ran.result["world_model"]
    assert summary["dream_steps"] > 0 and summary["dream_steps_per_second"] > 0
    assert summary["temperature"] == 1
    prediction = summary["prediction"]
    assert prediction.keys() >= {"reward_r2", "mask_f1", "done_accuracy", "error_by_step"}
    assert 0 <= prediction["invalid_share"] <= 1
    policy = tmp_path / "run" / "policy"
    described = json.loads((policy / "policy.json").read_text())
    assert described["kind"] == "controller" and described["permits"] == "num_places"
    assert described["latents"]["block"] == "full"
    arguments = ("evaluate", "tensor_graphs", "--model", models[0], "--objective", "analytic")
    ran = tfrl(*arguments, "--policy", policy, "--rollouts", 2, "--json")
    (comparison,) = ran.result["models"]
    (learned,) = comparison["policies"]
    assert learned["estimated_ms_after"] <= comparison["estimated_ms_before"]
    path = policy / "policy.json"
    path.write_text(json.dumps({**described, "rules_sha256": "0" * 64}))
    ran = tfrl(*arguments, "--policy", policy)
    assert ran.status == 1 and "expected the rules that it was trained with" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.ci
def test_without_masks_all_numbers_are_tried(train, models, tfrl, tmp_path):
    """What is refused costs 100. The policy is used with masks, like any other."""
    unmasked = {"masked": "false", "max_locations": 8}
    ran = train(tmp_path / "run", models[:1], "--iterations", 1, **unmasked)
    (learned,) = ran.result["training"]
    assert learned["steps_per_episode"] == GRAPHS["max_steps"] and learned["mean_return"] < -400
    policy = tmp_path / "run" / "policy"
    described = json.loads((policy / "policy.json").read_text())
    fields = {"head": "hierarchical", "num_places": 8, "block": "two_way"}
    assert described.items() >= fields.items()
    ran = tfrl(
        *("evaluate", "tensor_graphs", "--model", models[0], "--objective", "analytic"),
        *("--policy", policy, "--rollouts", 2, "--json"),
    )
    (comparison,) = ran.result["models"]
    assert comparison["policies"][0]["steps"] > 0
    ran = train(tmp_path / "other", models[:1], agent="bc_max", masked="false")
    assert ran.status == 1 and "masked: expected true for bc_max" in ran.err
    ran = train(tmp_path / "other", models[:1], head="pointer", **unmasked)
    assert ran.status == 1 and "head: expected hierarchical" in ran.err


@pytest.mark.ci
def test_es_learns_on_members_of_families_and_is_used_on_others(train, tfrl, tmp_path, monkeypatch):
    """Each episode has a new member, and evaluation has others, always the same."""
    monkeypatch.setattr(learning, "NUM_EVALUATED", 1)
    room = {"max_nodes": 192, "max_edges": 256, "max_locations": 64, "max_actions": 256}
    settings = {"evaluate_every": 1, "random_steps": 2, "max_steps": 4, "truncate": True, **room}
    ran = train(tmp_path / "run", ["families"], "--iterations", 1, agent="es", **settings)
    costs = {f"cost/{family}:1000000" for family in families.FAMILIES}
    assert {name for name in ran.result["evaluation"]["last"] if "cost/" in name} == costs
    policy = tmp_path / "run" / "policy"
    described = json.loads((policy / "policy.json").read_text())
    assert (described["kind"], described["max_logit"]) == ("graph_actor", 4)
    arguments = ("evaluate", "tensor_graphs", "--objective", "analytic", "--policy", policy)
    ran = tfrl(*arguments, "--rollouts", 1, "--model", "recurrent:2000000", "--json")
    assert ran.result["models"][0]["model"] == "recurrent:2000000"
    ran = tfrl(*arguments, "--model", "recurrent")
    assert ran.status == 1 and "transformers:7" in ran.err and len(ran.err.splitlines()) == 1


def of_other_features(policy, copy):
    """A copy, as if it had been learned before an operator or a feature was added."""
    shutil.copytree(policy, copy)
    described = json.loads((copy / "policy.json").read_text())
    (copy / "policy.json").write_text(json.dumps({**described, "vocabulary": "0123456789abcdef"}))
    return copy


def test_mistakes(train, models, tfrl, tmp_path):
    ran = train(tmp_path / "small", models[:1], max_nodes=4)
    assert ran.status == 1 and "raise max_nodes" in ran.err
    ran = tfrl(
        *("optimize", models[0], "-o", tmp_path / "out.onnx", "--method", "policy"),
        *("--policy", tmp_path),
    )
    assert ran.status == 1 and len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out.onnx").exists()
