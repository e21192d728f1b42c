"""What the tables of tensor graphs say: figures worked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from environments.errors import UserError
from tools.benchmarks.tensor_graphs import (
    cases,
    experiments,
    pictures,
    report,
    walks,
    writing,
)
from tools.benchmarks.tensor_graphs.report import Found

pytestmark = pytest.mark.study

ABOUT = {
    "command": "python -m it",
    "commit": "abc",
    "processors": 2,
    "jobs": 1,
    "seconds": 60.0,
    "rollouts": 16,
}


def searched(model, method, cost_ms, path=()):
    return {
        "model": model,
        "method": method,
        "start_cost_ms": 10.0,
        "cost_ms": cost_ms,
        "path": [[xfer, [0]] for xfer in path],
        "expansions": 1200,
        "seconds": 2.5,
    }


def played(model, seed, cost_ms, *, agent="ppo", path=(), reward="", on=None, in_disguise=False):
    return {
        **searched(model, agent, cost_ms, path),
        "seed": seed,
        "reward": reward,
        "trained_on": [on or model],
        "in_disguise": in_disguise,
    }


def trained(model, seed, returns, costs=(1.0,), *, agent="ppo", reward=""):
    return {
        "agent": agent,
        "models": [model],
        "seed": seed,
        "reward": reward,
        "iterations": 2,
        "environment_steps": 1000 * (seed + 1),
        "seconds": {"collecting": 9.0, "waiting": 2.0, "training": 1.0},
        "training": [
            {"iteration": number + 1, "environment_steps": 100 * (number + 1), "mean_return": value}
            for number, value in enumerate(returns)
        ],
        "evaluations": [
            {"iteration": number + 1, "cost": value} for number, value in enumerate(costs)
        ],
    }


def compared(value, low, high, same_low=0.98, same_high=1.01):
    return {
        "ratio": {"value": value, "low": low, "high": high},
        "same": {"value": 1.0, "low": same_low, "high": same_high},
    }


def timed(model, method, levels, *, is_equal=True):
    return {
        "model": model,
        "method": method,
        "levels": levels,
        "is_equal": is_equal,
        "peak_bytes": 3 << 20,
    }


GRAPHS = [
    {"cost_ms": 1.0, "bytes_moved": 1, "flops": 7, "num_kernels": 5, "measured": 0.9},
    {"cost_ms": 2.0, "bytes_moved": 3, "flops": 7, "num_kernels": 4},
    {"cost_ms": 3.0, "bytes_moved": 2, "flops": 7, "num_kernels": 4, "measured": 0.8},
    {"cost_ms": 4.0, "bytes_moved": 4, "flops": 7, "num_kernels": 1},
]


@pytest.fixture
def found():
    """Two models of 10 ms, two seeds; a policy for the first one is used on the second, too."""
    searches = [searched(m, method, 8.0) for m in ("a", "b") for method in cases.SEARCHES]
    searches += [searched("b", "chance", cost) for cost in (9.0, 7.0)]
    plays = [
        *(played("a", seed, cost) for seed, cost in enumerate((8.0, 8.0))),
        played("b", 0, 7.0, path=["fuse", "fuse", "fold"]),
        played("b", 1, 5.0, path=["fuse"]),
        *(played("b", seed, 6.4, on="a") for seed in (0, 1)),
        *(played("b", seed, 8.0, on="a", in_disguise=True) for seed in (0, 1)),
        *(played("a", seed, cost, reward="R2") for seed, cost in enumerate((9.0, 7.0))),
    ]
    runs = [
        trained("a", 0, (0.0, 10.0), (1.0, 0.8)),
        trained("a", 1, (5.0, 20.0), (1.0, 0.6)),
        trained("b", 0, (3.0, 3.0)),
        trained("a", 0, (1.0, 2.0), (0.9, 0.9), reward="R2"),
    ]
    measured = [
        timed("a", "original", {"onnxruntime": compared(0.5, 0.4, 0.6)}),
        timed("a", "ppo", {"onnxruntime": compared(0.9, 0.85, 0.95, 0.97)}, is_equal=False),
    ]
    walked = [{"model": "a", "start_cost_ms": 10.0, "graphs": GRAPHS}]
    remembered = [{"model": "a", "method": "taso", "peak_bytes": 5 << 20}]
    return Found(searches, runs, plays, measured, walked, remembered)


def summary(found):
    return report.summarise(found, ["a", "b"], ["ppo"], "R5", ABOUT)


def test_quality_and_verdict_by_hand(found):
    a, b = summary(found)["quality"]
    assert a["methods"]["taso"] == {"median": 0.8, "min": 0.8, "max": 0.8}
    assert b["methods"]["ppo"] == {"median": 0.6, "min": 0.5, "max": 0.7}
    assert b["methods"]["chance"] == {"median": 0.8, "min": 0.7, "max": 0.9}
    # On "a" as good as TASO, on "b" 6 ms against 8.
    verdict = summary(found)["verdicts"]["ppo"]
    assert verdict["not_worse"] == ["a", "b"] and verdict["models"] == 2
    assert verdict["percent_lower"] == {"b": pytest.approx(25)}
    assert verdict["median_percent_lower"] == pytest.approx(25)


def test_nobody_is_lower(found):
    for one in found.plays:
        one["cost_ms"] = 9.0
    verdict = summary(found)["verdicts"]["ppo"]
    assert verdict["not_worse"] == [] and verdict["median_percent_lower"] is None


def test_steps_and_seconds_of_trainings(found):
    (one,) = summary(found)["training"]
    assert one["environment_steps"] == {"median": 1000, "min": 1000, "max": 2000}
    # Collecting is work of all processes; learning waited for it for 2 s.
    assert one["seconds"]["median"] == 3.0 and one["runs"] == 4


def test_rewards_between_the_least_and_the_greatest_of_all_seeds(found):
    """Returns 0 and 5, then 10 and 20, all over 20."""
    one = report.curve(found, "a", "ppo")
    assert one["returns"] == [0, 20] and one["environment_steps"] == [100, 200]
    assert one["normalised"][0] == {"median": 0.125, "min": 0, "max": 0.25}
    assert one["normalised"][1] == {"median": 0.75, "min": 0.5, "max": 1}
    # Where nothing is ever gained, nothing can be brought apart.
    assert report.curve(found, "b", "ppo")["normalised"][1]["median"] == 0


def test_rank_correlations_by_hand():
    of = walks.correlations(GRAPHS)
    # 1 - 6 (0 + 1 + 1 + 0) / (4 (16 - 1)).
    assert of["cost_ms"]["bytes_moved"] == pytest.approx(0.8)
    # Ranks 4, 2.5, 2.5, 1 of the kernels: -4.5 / sqrt(5 * 4.5).
    assert of["cost_ms"]["num_kernels"] == pytest.approx(-4.5 / np.sqrt(22.5))
    assert of["cost_ms"]["flops"] is None
    # Only the first and the third were measured.
    assert of["measured"]["cost_ms"] == of["cost_ms"]["measured"] == pytest.approx(-1)
    assert of["bytes_moved"]["bytes_moved"] == pytest.approx(1)


def test_a_sample_has_both_ends():
    assert walks.spread_places(10, 4) == [0, 3, 6, 9]
    assert walks.spread_places(3, 12) == [0, 1, 2]
    assert walks.spread_places(5, 1) == [0] and walks.spread_places(0, 4) == []


def test_other_rewards_by_hand(found):
    rows = {one["reward"]: one for one in summary(found)["rewards"]["rows"]}
    assert list(rows) == ["R1", "R2", "R3", "R4", "R5"]
    assert rows["R2"]["ratio"] == {"median": 0.8, "min": 0.7, "max": 0.9}
    # R5 is what all others learned with.
    assert rows["R5"]["runs"] == 2 and rows["R1"]["ratio"] is None
    assert rows["R5"]["costs"][1] == {"median": 0.7, "min": 0.6, "max": 0.8}


def test_substitutions_by_hand(found):
    assert summary(found)["substitutions"] == {"a": {}, "b": {"fold": 0.5, "fuse": 1.5}}


def test_shares_of_gains_by_hand(found):
    """On "b" its own policies gain 30% and 50%, that of "a" 36%, in disguise 20%.

    Chance gains 10% and 30%.
    """
    one = summary(found)["generalisation"]
    assert one["trained_on"] == ["a"]
    (row,) = one["rows"]
    assert row["own"]["median"] == pytest.approx(0.4)
    assert row["general_share"] == pytest.approx(0.9)
    assert row["disguised_share"] == one["mean"]["disguised_share"] == pytest.approx(0.5)
    assert row["chance_share"] == pytest.approx(0.5)


def test_shares_before_chance_has_played(found):
    del found.searches[-2:]
    one = summary(found)["generalisation"]
    assert one["rows"][0]["chance_share"] is one["mean"]["chance_share"] is None
    assert one["mean"]["general_share"] == pytest.approx(0.9)


def test_the_median_record_is_one_that_there_is():
    records = [searched("a", "ppo", cost) for cost in (7.0, 5.0, 9.0, 6.0)]
    assert report.median_of(records) is records[3]


def test_costs_that_were_measured_anew(found):
    found.plays[0]["start_cost_ms"] = 11.0
    with pytest.raises(UserError, match="a: expected all estimates by the same costs"):
        summary(found)


def test_the_tables(found, tmp_path, monkeypatch):
    table = summary(found)
    experiments.write(table, tmp_path)
    text = (tmp_path / "table.md").read_text()
    savings = "-20.00% | -20.00% | -20.00% | -20.00% (-30.00..-10.00) | -40.00% (-50.00..-30.00)"
    assert f"| b | 10 ms | {savings} |" in text
    assert "| b | 1,200 (2.5 s) | 1,200 (2.5 s) | 1,200 (2.5 s) | 1,200 (2.5 s) |" in text
    assert "not worse than taso on 2 of 2 models, lower on 1, by 25.00% in the median" in text
    assert "2,000 at most, within the 400,000" in text
    assert "| a, original | 0.500 [0.400, 0.600] | [0.980, 1.010] |" in text
    assert "| a, ppo | 0.900 [0.850, 0.950] | [0.970, 1.010] |" in text
    assert "Outputs differ by more than is allowed: ppo of a." in text
    assert "| a | 4 | 0.80 | – | -0.95 | 2 | -1.00 | -1.00 | – | 1.00 |" in text
    assert "| R2 | new runtime | -20.00% (-30.00..-10.00) | 2 |" in text
    assert "| fuse | 1.5 |" in text and "| a | 5 |" in text and "| a | 3 | 3 |" in text
    assert "| mean | 40.00% | 36.00% | 90.0% | 20.00% | 50.0% | 20.00% | 50.0% |" in text
    assert text.count("`python -m it` at commit abc; seeds of policies 0, 1") == 7
    assert json.loads((tmp_path / "table.json").read_text())["seeds"] == [0, 1]
    for name in ("runtimes", "curves", "correlations", "rewards", "substitutions"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    first = (tmp_path / "rewards.svg").read_bytes()
    monkeypatch.setattr(pictures, "_PICTURES", {"rewards": pictures._PICTURES["rewards"]})
    pictures.draw(table, tmp_path)
    assert (tmp_path / "rewards.svg").read_bytes() == first


def test_what_is_not_there_yet_is_left_out(found):
    early = Found(searches=found.searches)
    text = writing.to_markdown(summary(early))
    assert "| a | 10 ms | -20.00% | -20.00% | -20.00% | – | – |" in text
    assert text.count("`python -m it`") == 1 and "seeds of policies none yet" in text
