"""Searches compared, and what a step costs."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, convolutions, write
from tfrl_systems.systems.tensor_graphs import benchmarks as bench
from tfrl_systems.training.system import System

QUICK = ("--objective", "analytic", "--expansions", "60")


@pytest.fixture
def model(tmp_path):
    return write(tmp_path / "adapter.onnx", adapter())


def test_policies_are_compared(model, tfrl):
    ran = tfrl(
        *("evaluate", "tensor_graphs", "--policy", "regions", "--policy", "taso"),
        *("--policy", "random", "--policy", "greedy", "--model", model, "--json", *QUICK),
    )
    (comparison,) = ran.result["models"]
    assert comparison["model"] == str(model)
    ours, taso, random, greedy = comparison["policies"]
    for policy in comparison["policies"]:
        assert policy.keys() >= {"policy", "seconds"}
        assert policy["steps"] == len(policy["substitutions"])
        assert policy["estimated_ms_after"] <= comparison["estimated_ms_before"]
        assert policy["expansions_of_best"] <= policy["expansions"] <= 60 or policy is random
    assert ours["estimated_ms_after"] <= taso["estimated_ms_after"]
    assert ours["estimated_ms_after"] <= greedy["estimated_ms_after"]
    assert {"xfer", "location"} == ours["substitutions"][0].keys()


def test_a_table_with_the_bound(tmp_path, tfrl):
    """For two convolutions our search is optimal, and that is proved."""
    model = write(tmp_path / "convolutions.onnx", convolutions())
    ran = tfrl(
        *("evaluate", "tensor_graphs", "--policy", "regions", "--model", model, "--bound", *QUICK)
    )
    assert ran.status == 0, ran.err
    header, before, ours, bound = ran.out.splitlines()
    assert header.startswith(str(model)) and before.startswith("(the model)")
    assert ours.split()[:3] == ["regions", bound.split()[1], bound.split()[2]]
    assert bound.startswith("bound")


STEP_BENCHMARKS = (
    "engine_step_ms",
    "incremental_over_full_match",
    "environment_step_ms",
    "memory_growth_mib",
    "policy_ms",
    "policy_again_ms",
    "train_step_ms",
)


def test_what_a_step_costs(model, tfrl, monkeypatch):
    """Of each model that is named; what learning costs is measured in the next test."""
    monkeypatch.setattr(
        bench, "measure_learning", lambda *_: ([2.0] * 32, [1.0] * 32, [5.0, 7.0, 6.0])
    )
    monkeypatch.setattr(bench, "measure_dreaming", lambda system, request, name: len(name))
    arguments = ("bench", "tensor_graphs", "--model", model, "--model", "bert-tiny")
    ran = tfrl(*arguments, "--steps", "20", "--json")
    benchmarks = ran.benchmarks
    assert benchmarks.keys() == {
        f"{name}_{model_name}" for model_name in (model, "bert-tiny") for name in STEP_BENCHMARKS
    } | {"dream_steps_per_second"}
    step = benchmarks["engine_step_ms_bert-tiny"]
    assert 0 < step["value"] < 50 and step["unit"] == "ms" and "--steps 20" in step["command"]
    ratio = benchmarks["incremental_over_full_match_bert-tiny"]
    assert ratio["ratio"] == pytest.approx(ratio["theirs_ms"] / ratio["ours_ms"])
    assert ratio["ratio"] > 1 and ratio["against"]
    assert 0 < benchmarks["environment_step_ms_bert-tiny"]["value"] < 100
    assert abs(benchmarks["memory_growth_mib_bert-tiny"]["value"]) < 200
    policy, update = benchmarks["policy_ms_bert-tiny"], benchmarks["train_step_ms_bert-tiny"]
    assert benchmarks["policy_again_ms_bert-tiny"]["value"] == 1
    assert (policy["value"], update["value"]) == (2, 6) and "32 graphs" in update["of"]
    # Dreams are of the first model.
    assert benchmarks["dream_steps_per_second"]["value"] == len(str(model))


@pytest.mark.ci
def test_what_learning_costs(model, tfrl, monkeypatch):
    """An untrained policy is asked and trained, and dreams are made; all by small networks."""
    monkeypatch.setattr(bench, "NUM_DREAMS", 8)
    monkeypatch.setattr(bench, "DREAM_STEPS", 4)

    def plan(self, agent, seed, settings, problem, usual=System.plan):
        small = {**settings, "graph_width": 4, "graph_rounds": 1}
        return usual(self, agent, seed, small, problem)

    monkeypatch.setattr(System, "plan", plan)
    ran = tfrl("bench", "tensor_graphs", "--model", model, "--steps", "5", "--json")
    benchmarks = ran.benchmarks
    assert benchmarks.keys() == {f"{name}_{model}" for name in STEP_BENCHMARKS} | {
        "dream_steps_per_second"
    }
    policy, update = benchmarks[f"policy_ms_{model}"], benchmarks[f"train_step_ms_{model}"]
    assert 0 < policy["value"] < update["value"] and " graphs" in update["of"]
    dreams = benchmarks["dream_steps_per_second"]
    assert dreams["value"] > 0 and "8 dreams" in dreams["of"] and "4 steps" in dreams["of"]
