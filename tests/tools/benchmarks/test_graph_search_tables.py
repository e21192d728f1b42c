"""The tables of searches with and without a policy."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tfrl_systems.systems.tensor_graphs.policy import Chance, GraphPolicy
from tools.benchmarks import graph_search_tables as tables

pytestmark = pytest.mark.study

SETTINGS = {
    **{"max_nodes": 64, "max_edges": 96, "max_locations": 50, "max_actions": 128},
    **{"max_steps": 8, "may_stop": False, "constants": False},
}


def record(how, *gains, model="m", policy="p", seed=0):
    about = {"model": model, "how": how, "policy": policy, "seed": seed, "start_cost_ms": 100.0}
    cost_ms = gains[-1][2] if gains else 100.0
    return {**about, "cost_ms": cost_ms, "gains": [list(one) for one in gains]}


REGIONS = record("regions", (0.5, 10, 95.0), (3.0, 80, 90.0), policy="")


def test_savings_and_expansions_by_hand():
    assert [tables.saved(REGIONS, limit_s) for limit_s in (0.4, 0.5, 60)] == pytest.approx(
        [0, 5, 10]
    )
    needed = [tables.expansions_to(REGIONS, target_ms) for target_ms in (100, 92, 90, 89.9)]
    assert needed == [0, 80, 80, float("inf")]


def test_the_tables_by_hand():
    """Of three seeds one never comes to 90; led needs 20 expansions where regions needs 80."""
    found = [
        REGIONS,
        record("policy", (0.9, 50, 90.0), seed=0),
        record("policy", (0.9, 40, 98.0), seed=1),
        record("policy", (0.9, 40, 96.0), (2.0, 70, 89.0), seed=2),
        record("led", (0.2, 20, 90.0)),
        record("regions", (0.1, 7, 50.0), model="n", policy=""),
        record("led", (0.1, 7, 50.0), (0.2, 9, 49.0), model="n"),
    ]
    rows = tables.table(found, (1, 60)).splitlines()[2:]
    assert rows == [
        "| m, regions | 5.00 | 10.00 | 80 |",
        "| m, policy p | 4.00 (2.00..10.00) | 10.00 (2.00..11.00) | 70 (50..never) |",
        "| m, led p | 10.00 | 10.00 | 20 |",
        "| n, regions | 50.00 | 50.00 | 7 |",
        "| n, led p | 51.00 | 51.00 | 7 |",
    ]
    assert tables.summary(found).splitlines()[2:] == [
        "| policy p | 0 of 1 | 1 of 1 | 1 of 1 |",
        "| led p | 1 of 2 | 2 of 2 | 2 of 2 |",
    ]


def test_a_tiny_run_is_kept_and_put_into_the_tables(tmp_path, capsys, monkeypatch):
    def load(directory, seed):
        return GraphPolicy(Chance(), SETTINGS, seed)

    monkeypatch.setattr(GraphPolicy, "load", load)
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.json").write_text("{}")
    model = write(tmp_path / "adapter.onnx", adapter())
    options = tables.parse_arguments(
        [
            *("--output", str(tmp_path / "out"), "--policies", str(policy)),
            *("--models", str(model), "--seeds", "2", "--seconds", "0.1,0.2"),
            *("--objective", "analytic"),
        ]
    )
    tables.run(options)
    text = (tmp_path / "out" / "table.md").read_text()
    assert text in capsys.readouterr().out
    for way in ("regions", f"episode {policy}", f"policy {policy}", f"led {policy}", "chance"):
        assert f"| {model}, {way} |" in text
    files = sorted((tmp_path / "out" / "searches").iterdir())
    assert len(files) == 1 + 1 + 2 + 1 + 2
    before = [one.read_bytes() for one in files]
    tables.run(options)
    assert [one.read_bytes() for one in files] == before


def test_a_disguised_model_has_a_record_of_its_own(tmp_path):
    """It is the same model, so both searches come to the same cost."""
    model = write(tmp_path / "adapter.onnx", adapter())
    about = [*("--policies", "p", "--models", str(model), "--objective", "analytic")]
    costs_ms = []
    for disguise in ((), ("--disguised", "3")):
        output = tmp_path / f"out{len(disguise)}"
        options = tables.parse_arguments([*about, "--output", str(output), *disguise])
        search = next(tables.tasks_of(options))
        assert search.disguise == (3 if disguise else None)
        costs_ms.append(search()["cost_ms"])
    assert costs_ms[0] == pytest.approx(costs_ms[1])


def test_mistakes(capsys):
    with pytest.raises(SystemExit):
        tables.parse_arguments(["--output", "x", "--policies", "p"])
    assert "--models" in capsys.readouterr().err
