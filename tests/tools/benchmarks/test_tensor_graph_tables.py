"""The tables of tensor graphs: what they need, and a tiny run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from tests.environments.tensor_graphs.small_models import adapter, convolutions, write
from tfrl_systems.experiments import Reporter
from tools.benchmarks import shared, tensor_graph_tables
from tools.benchmarks.tensor_graphs import (
    cases,
    experiments,
    memory,
    pictures,
    report,
    times,
    walks,
)
from tools.benchmarks.tensor_graphs.cases import Plan, Run
from tools.benchmarks.tensor_graphs.disguise import disguised
from tools.benchmarks.tensor_graphs.experiments import Experiments
from tools.benchmarks.tensor_graphs.measurements import Benchmark

pytestmark = pytest.mark.study


def test_the_plan_of_a_seed():
    plan = Plan.of("abcd", ("ppo", "reinforce"), 3, "R5")
    assert len(plan.own) == 8 and [one.reward for one in plan.rewards] == ["R1", "R2", "R3", "R4"]
    assert plan.general == Run("ppo", ("a", "c"), 3)
    assert len({one.name for one in plan.runs}) == len(plan.runs) == 13
    assert plan.rewards[0].name == "ppo-a-R1-seed-3"
    # Half of two models is one of them.
    assert len(Plan.of("ab", ("ppo",), 0, "R5").runs) == 2 + 4
    assert Plan.of("a", ("ppo",), 0, "terminal").general is None
    assert cases.usual_reward("runtime") == "R5" and cases.usual_reward("terminal") == "terminal"


def test_some_seeds_have_no_comparisons(monkeypatch, tmp_path):
    trained_runs = []
    monkeypatch.setattr(experiments, "train", lambda _, run: trained_runs.append(run.name) or {})
    monkeypatch.setattr(experiments, "play", lambda *_, **__: {})
    one = Experiments(Benchmark(tmp_path), "abcd", ("ppo",), Reporter())
    one.usual = "R5"
    for seed, has_others in ((0, True), (1, False)):
        one.learn(seed, lambda tasks: (task() for task in tasks), has_others)
    assert trained_runs[9:] == [f"ppo-{model}-seed-1" for model in "abcd"]
    assert trained_runs[4:9] == [*(f"ppo-a-R{n}-seed-0" for n in range(1, 5)), "ppo-several-seed-0"]
    # On b and d also the one for several models, twice: as they are, and in disguise.
    assert len(one.found.plays) == (4 + 4 + 2 * 2) + 4


@pytest.mark.parametrize("make", [adapter, convolutions])
def test_a_disguised_model_is_the_same_model(make):
    model = make()
    graph = onnx_io.read(model)
    other = disguised(graph, 1)
    assert disguised(graph, 1) == other
    names = [graph.nodes[number].attribute("name") for number in graph.inputs]
    assert [other.nodes[number].attribute("name") for number in other.inputs] != names
    order = [node.op for _, node in sorted(graph.nodes.items())]
    assert [node.op for _, node in sorted(other.nodes.items())] != order
    engine = Engine(rule_files.load(), AnalyticObjective())
    before, after = engine.start(graph), engine.start(other)
    assert after.cost_ms == before.cost_ms
    np.testing.assert_array_equal(after.num_matches, before.num_matches)
    inputs = random_inputs(model)
    given = dict(zip(["given_0"], inputs.values(), strict=True))
    (expected,) = backend().open(model).run(inputs).values()
    (found,) = backend().open(onnx_io.write(other)).run(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_memory_of_a_process_is_its_own(tmp_path):
    model = write(tmp_path / "model.onnx", adapter())
    np.savez(tmp_path / "inputs.npz", **random_inputs(adapter()))
    ours = np.ones(50_000_000)  # 400 MB, which a child would inherit the peak of
    peak = memory.peak_bytes("run", str(model), str(tmp_path / "inputs.npz"))
    assert 20_000_000 < peak < 350_000_000 < ours.nbytes
    searched = ("evaluate", "greedy", "--model", str(model), "--objective", "analytic")
    assert 20_000_000 < memory.peak_bytes(*searched) < 350_000_000
    with pytest.raises(UserError, match=r"run nothing.onnx.*: .*nothing.onnx"):
        memory.peak_bytes("run", "nothing.onnx", str(tmp_path / "inputs.npz"))


def arguments(output, models, *more):
    small = (
        *("num_chunks=1", "episodes_per_chunk=2", "graph_width=8", "graph_rounds=1"),
        *("max_steps=6", "max_nodes=64", "max_edges=96", "max_actions=128", "evaluate_every=1"),
        "reward=runtime",
    )
    settings = [word for one in small for word in ("--set", one)]
    fewer = [
        *("--models", ",".join(map(str, models)), "--seeds", "1", "--agents", "reinforce"),
        *("--iterations", "2", "--seconds", "60", "--rollouts", "2", "--measure-seconds", "0.01"),
        *("--objective", "analytic"),
    ]
    return ["--output", str(output), *fewer, *settings, *more]


def run(output, models, *more):
    tensor_graph_tables.run(tensor_graph_tables.parse_arguments(arguments(output, models, *more)))
    return json.loads((output / "table.json").read_text())


@pytest.fixture
def small(monkeypatch):
    """Fewer rewards, levels and walks, no pictures and no processes; returns their commands."""
    few = {one: report.SYMBOLS[one] for one in ("R2", "R5")}
    commands = []

    def peak_bytes(*command):
        commands.append(command)
        return len(commands) << 20

    for module in (cases, report):
        monkeypatch.setattr(module, "SYMBOLS", few)
    monkeypatch.setattr(times, "_LEVELS", ("onnxruntime-disable", "onnxruntime"))
    monkeypatch.setattr(times, "peak_bytes", peak_bytes)
    for name, number in (("_NUM_WALKS", 2), ("_NUM_STEPS", 5), ("_NUM_MEASURED", 2)):
        monkeypatch.setattr(walks, name, number)
    monkeypatch.setattr(pictures, "draw", lambda table, output: None)
    monkeypatch.setattr(shared, "commit", lambda: "abc")
    return commands


def test_one_model(small, no_saved_models, tmp_path, monkeypatch):
    """One policy learns; there is no other model to use it on, and no other reward."""
    for module in (cases, report):
        monkeypatch.setattr(module, "SYMBOLS", {"R5": report.SYMBOLS["R5"]})
    models = [write(tmp_path / "adapter.onnx", adapter())]
    table = run(tmp_path / "out", models, "--iterations", "1")
    (quality,), (curve,) = table["quality"], table["curves"]
    methods = quality["methods"]
    assert methods.keys() == {"greedy", "taso", "regions", "chance", "reinforce"}
    assert methods["regions"]["median"] <= methods["greedy"]["median"] < 0.7
    assert methods["reinforce"]["median"] <= 1 and len(curve["normalised"]) == 1
    assert quality["work"]["chance"]["expansions"] == quality["work"]["reinforce"]["expansions"]
    names = ["original", "greedy", "taso", "regions", "reinforce"]
    assert list(table["times"][0]["methods"]) == list(table["memory"][0]["methods"]) == names
    assert table["times"][0]["methods"]["greedy"]["onnxruntime"]["ratio"]["value"] > 0
    assert table["differing"] == table["generalisation"]["rows"] == []
    assert table["correlations"][0]["graphs"] > 1 and table["correlations"][0]["measured"] == 2
    # Five methods run and optimise the model.
    assert [one[0] for one in small] == ["run"] * 5 + ["evaluate"] * 5
    assert small[5][1] == "greedy" and "--expansions 0" in " ".join(small[5])
    # Finished: nothing is done again.
    assert run(tmp_path / "out", models, "--iterations", "1") == table and len(small) == 10
    # Other settings are another benchmark.
    with pytest.raises(UserError, match="name another directory with --output"):
        run(tmp_path / "out", models, "--iterations", "1", "--seconds", "61")


@pytest.mark.slow
def test_a_tiny_run(small, tmp_path):
    models = [
        write(tmp_path / "adapter.onnx", adapter()),
        write(tmp_path / "convolutions.onnx", convolutions()),
    ]
    table = run(tmp_path / "out", models)
    first = table["quality"][0]["methods"]
    assert first.keys() == {"greedy", "taso", "regions", "chance", "reinforce"}
    assert table["quality"][0]["work"]["chance"] == {
        "expansions": table["quality"][0]["work"]["reinforce"]["expansions"],
        "seconds": pytest.approx(0, abs=30),
    }
    assert first["regions"]["median"] <= first["greedy"]["median"] < 0.7
    assert first["reinforce"]["median"] <= 1
    methods = ["original", "greedy", "taso", "regions", "reinforce"]
    assert list(table["times"][0]["methods"]) == list(table["memory"][0]["methods"]) == methods
    assert table["times"][0]["methods"]["greedy"]["onnxruntime"]["ratio"]["value"] > 0
    assert table["differing"] == []
    # Each model on its own, and the first one with R2.
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 3
    assert [len(one["normalised"]) for one in table["curves"]] == [2, 2]
    assert [one["runs"] for one in table["rewards"]["rows"]] == [1, 1]
    assert table["generalisation"]["trained_on"] == [str(models[0])]
    assert table["generalisation"]["rows"][0]["disguised"] is not None
    assert table["correlations"][0]["graphs"] > 1 and table["correlations"][0]["measured"] == 2
    # Five methods run and optimise two models each.
    assert [one[0] for one in small] == ["run"] * 10 + ["evaluate"] * 10
    assert small[10][1] == "greedy" and "--expansions 0" in " ".join(small[10])
    # Finished: nothing is done again.
    assert run(tmp_path / "out", models) == table and len(small) == 20
    # Other settings are another benchmark.
    with pytest.raises(UserError, match="name another directory with --output"):
        run(tmp_path / "out", models, "--seconds", "61")


def test_mistakes(tmp_path, capsys):
    with pytest.raises(SystemExit):
        tensor_graph_tables.parse_arguments(["--output", "out", "--agents", "ppo,nobody"])
    assert "expected some of ppo,reinforce, found 'ppo,nobody'" in capsys.readouterr().err
    with pytest.raises(UserError, match="found two named model"):
        run(tmp_path, ["here/model.onnx", "there/model.onnx"])
