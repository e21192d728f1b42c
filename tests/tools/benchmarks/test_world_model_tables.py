"""The tables of world models: a tiny run of each.

By default ES learns what a world model learns in the tables, because TensorFlow traces much less
for it. What world models do in these systems is tested in `tfrl_systems`.
"""

from __future__ import annotations

import pytest

from environments.tensor_graphs import rewards
from tests.environments.tensor_graphs.small_models import adapter, write
from tools.benchmarks import world_model_tables
from tools.benchmarks.world_models import measured
from tools.benchmarks.world_models.landscapes import Few
from tools.benchmarks.world_models.measured import Measured
from tools.benchmarks.world_models.rewriting import Case, Play, Search

pytestmark = pytest.mark.study

DREAMING = (
    ("memory_size", 8),
    ("head_size", 8),
    ("num_dreams", 8),
    ("dream_updates", 1),
    ("fit_updates", 2),
)
SHORT = (("max_steps", 4), ("graph_width", 4), ("graph_rounds", 1))
TINY = {"es": (("num_chunks", 2), *SHORT), "world_model": (*DREAMING, *SHORT)}

every_learner = pytest.mark.parametrize(
    "agent", ["es", pytest.param("world_model", marks=pytest.mark.slow)]
)


@pytest.mark.usefixtures("no_saved_models")
@every_learner
def test_graphs(agent, tmp_path, monkeypatch):
    model = str(write(tmp_path / "adapter.onnx", adapter()))
    iterations = {"es": 1, "world_model": 2}[agent]
    case = Case("learned", agent, model, 0, iterations, TINY[agent])
    monkeypatch.setattr(Case, "name", property(lambda one: f"{one.agent}-{one.seed}"))
    play = Play(case, tmp_path / "out", 3)
    made = play()
    if agent == "es":
        assert made["world_model"] is None
    else:
        # 2 iterations of 4 episodes, and an evaluation after the last.
        assert 0 < made["environment_steps"] <= (2 * 4 + 1) * 4
        assert made["world_model"]["dream_steps"] > 0
    assert made["environment_steps"] > 0
    assert made["return"] <= 100 * (1 - made["best"])
    assert made["best"] <= made["mean"] and made["best"] <= made["greedy"] <= 1
    # It is kept, and not made again.
    monkeypatch.setattr(Play, "_made", None)
    assert play() == made


def test_chance_learns_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Case, "name", property(lambda one: one.agent))
    model = str(write(tmp_path / "adapter.onnx", adapter()))
    made = Play(Case("chance", "chance", model, 0), tmp_path / "out", 3)()
    assert made["environment_steps"] == 0 and made["greedy"] is None and made["best"] <= 1


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("reinforce", (("hidden_sizes", (4,)),)),
        pytest.param("world_model", (*DREAMING, ("fit_episodes", 4)), marks=pytest.mark.slow),
    ],
)
def test_evaluations_are_counted(agent, settings, tmp_path, no_saved_models):
    """256 fixed points are measured; an episode of two steps takes three, and the policy 21."""
    made = Few(agent, 0, 1, settings, tmp_path)()
    assert made["evaluations"] == 256 + 4 * 40 * 3 + 21
    assert made["truth_evaluations"] == 21
    assert made["mse"] > 0


def test_the_tables(tmp_path, monkeypatch, capsys):
    """Made from records; the median and the range of the savings."""
    record = {
        "environment_steps": 2880,
        "seconds": 10.0,
        "world_model": {"dreamed_return": 1.0},
        "return": 2.0,
    }

    iterations = []

    def played(one):
        cost = 0.9 - one.case.seed / 10
        found = {"label": one.case.label, "model": one.case.model, "seed": one.case.seed}
        slow = {"seconds": 30.0} if one.case.agent == "world_model" else {}
        iterations.append((one.case.label, one.case.iterations))
        return {**record, **found, **slow, "greedy": cost, "mean": cost, "best": cost}

    monkeypatch.setattr(Play, "__call__", played)
    monkeypatch.setattr(
        Search,
        "__call__",
        lambda one: {"model": one.model, "best": 0.5, "seconds": 3.0, "expansions": 7},
    )
    arguments = ["--output", str(tmp_path), "--tables", "graphs,temperatures,parts", "--seeds", "2"]
    world_model_tables.run(world_model_tables.parse_arguments([*arguments, "--temperatures", "1"]))
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "-15.00% (-20.00%..-10.00%)" in text and "7 expansions" in text and "-50.00%" in text
    assert "| 1 | 1.00 | 2.00 |" in text
    # PPO was three times as fast as the world model, so it gets three times the iterations.
    assert iterations.count(("PPO", 12)) == 2 and iterations.count(("PPO for as long", 36)) == 2


def measured_rewards(case, output, monkeypatch):
    monkeypatch.setattr(rewards, "end_to_end", lambda *_, **__: lambda first, graph: 0.9)
    monkeypatch.setattr(measured, "end_to_end", lambda *_: lambda first, graph: 0.8)
    monkeypatch.setattr(Case, "name", property(lambda one: one.agent))
    made = Measured(case, output)()
    assert made["ratio"] == 0.8
    return made


@pytest.mark.usefixtures("no_saved_models")
@every_learner
def test_measured_rewards(agent, tmp_path, monkeypatch):
    """It learns where some rewards are measured; all that counts in the end is measured too."""
    model = str(write(tmp_path / "adapter.onnx", adapter()))
    case = Case(agent, agent, model, 0, 1, (*TINY[agent], ("measure_every", 2)))
    assert measured_rewards(case, tmp_path / "out", monkeypatch)["environment_steps"] > 0


def test_chance_is_measured_too(tmp_path, monkeypatch):
    model = str(write(tmp_path / "adapter.onnx", adapter()))
    case = Case("chance", "chance", model, 0, 1)
    assert measured_rewards(case, tmp_path / "out", monkeypatch)["environment_steps"] == 0


def test_mistakes(capsys):
    with pytest.raises(SystemExit):
        world_model_tables.parse_arguments(["--output", "x", "--tables", "graph"])
    assert (
        "expected some of graphs,temperatures,parts,measured,landscape" in capsys.readouterr().err
    )
