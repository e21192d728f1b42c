"""The figures of `tensor_graph_tables.py`, computed from its records, as JSON values."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.rewards import SYMBOLS
from tools.benchmarks.shared import Record
from tools.benchmarks.tensor_graphs.cases import CHANCE, halves, slug
from tools.benchmarks.tensor_graphs.walks import MEASURED, correlations

BASELINE = "taso"
MOST_STEPS = 400_000
"""A tenth of the steps that the thesis trained one policy with."""
_GAINS = ("own", "general", "disguised", CHANCE)

Spread = dict[str, float]


@dataclasses.dataclass
class Found:
    """The records made so far.

    Attributes:
      searches: one for each model and method of `SEARCHES`; and for `CHANCE`, one for each policy
        of the first agent on its own model.
      runs: one for each training run.
      plays: one for each learned policy on each model that it was used on.
      times: end-to-end times of rewritten models and of original ones.
      walks: random walks, one record for each model.
      memory: memory that optimising takes, for each model and method.
    """

    searches: list[Record] = dataclasses.field(default_factory=list)
    runs: list[Record] = dataclasses.field(default_factory=list)
    plays: list[Record] = dataclasses.field(default_factory=list)
    times: list[Record] = dataclasses.field(default_factory=list)
    walks: list[Record] = dataclasses.field(default_factory=list)
    memory: list[Record] = dataclasses.field(default_factory=list)

    def own_plays(self, model: str, agent: str, reward: str = "") -> list[Record]:
        """Return the plays of policies that learned on the model itself, one for each seed."""
        return [
            one
            for one in self.plays
            if (one["model"], one["method"], one["reward"]) == (model, agent, reward)
            and one["trained_on"] == [model]
        ]

    def own_runs(self, model: str, agent: str, reward: str = "") -> list[Record]:
        """Return the training runs on the model itself, one for each seed."""
        return [
            one
            for one in self.runs
            if (one["models"], one["agent"], one["reward"]) == ([model], agent, reward)
        ]


def summarise(
    found: Found, models: Sequence[str], agents: Sequence[str], usual: str, about: Record
) -> dict[str, Any]:
    """Compute all figures of the tables.

    Args:
      found: the records.
      models: names of the models.
      agents: names of the agents; only the first one has figures for rewards, rules and
        generalisation.
      usual: symbol of the reward of the settings; see `usual_reward`.
      about: command, commit and the like, passed on unchanged.

    Raises:
      UserError: costs were measured anew between two records of a model.
    """
    _check_costs(found)
    rows = [quality(found, model, agents) for model in models]
    return {
        **about,
        "models": list(models),
        "agents": list(agents),
        "seeds": sorted({one["seed"] for one in found.runs}),
        "training": [_training(found, agent) for agent in agents],
        "quality": rows,
        "verdicts": {agent: verdict(rows, agent) for agent in agents},
        "times": [_by_method(found.times, model, "levels") for model in models],
        "differing": [
            f"{one['method']} of {slug(one['model'])}" for one in found.times if not one["is_equal"]
        ],
        "curves": [curve(found, model, agent) for model in models for agent in agents],
        "correlations": [_correlation(one) for one in found.walks],
        "rewards": rewards(found, models[0], agents[0], usual),
        "substitutions": {model: substitutions(found, model, agents[0]) for model in models},
        "memory": [_by_method(found.memory, model, "peak_bytes") for model in models],
        "inference_memory": [_by_method(found.times, model, "peak_bytes") for model in models],
        "generalisation": generalisation(found, models, agents[0]),
    }


def _check_costs(found: Found) -> None:
    known: dict[str, float] = {}
    for one in (*found.searches, *found.plays, *found.walks):
        expected = known.setdefault(one["model"], one["start_cost_ms"])
        if one["start_cost_ms"] != expected:
            raise UserError(
                f"{one['model']}: expected all estimates by the same costs, found models that "
                f"begin at {expected} ms and at {one['start_cost_ms']} ms; name another directory "
                "with --output"
            )


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and range of values; None if there are none."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(record: Record) -> float:
    """Return the cost after rewriting, divided by the cost of the original model."""
    return record["cost_ms"] / record["start_cost_ms"]


def median_of(records: Sequence[Record]) -> Record:
    """Return the record with the median cost; of two in the middle, the cheaper one."""
    cost_ms = statistics.median_low([one["cost_ms"] for one in records])
    return next(one for one in records if one["cost_ms"] == cost_ms)


def quality(found: Found, model: str, agents: Sequence[str]) -> dict[str, Any]:
    """Compute the estimated cost after each method, over the original's (Fig. 4.1, 4.3).

    The result also says how many rules each method applied in its search, and how long it took.
    """
    by_method: dict[str, list[Record]] = collections.defaultdict(list)
    for one in found.searches:
        if one["model"] == model:
            by_method[one["method"]].append(one)
    start_cost_ms = by_method[BASELINE][0]["start_cost_ms"]
    by_method |= {agent: found.own_plays(model, agent) for agent in agents}
    there = {name: records for name, records in by_method.items() if records}
    return {
        "model": model,
        "start_cost_ms": start_cost_ms,
        "methods": {name: spread([ratio(one) for one in each]) for name, each in there.items()},
        "work": {
            name: {
                figure: statistics.median(one[figure] for one in each)
                for figure in ("expansions", "seconds")
            }
            for name, each in there.items()
        },
    }


def verdict(rows: Sequence[Record], agent: str) -> dict[str, Any]:
    """Find the models on which an agent's policies, in the median, match or beat TASO's search.

    Args:
      rows: results of `quality`, one for each model.
      agent: name of the agent.
    """
    compared = {
        row["model"]: row["methods"][agent]["median"] / row["methods"][BASELINE]["median"]
        for row in rows
        if agent in row["methods"]
    }
    lower = {model: 100 * (1 - value) for model, value in compared.items() if value < 1}
    return {
        "models": len(compared),
        "not_worse": [model for model, value in compared.items() if value <= 1],
        "percent_lower": lower,
        "median_percent_lower": statistics.median(lower.values()) if lower else None,
    }


def _training(found: Found, agent: str) -> dict[str, Any]:
    """Return the steps and seconds of an agent's training runs that learn on a single model."""
    runs = [one for one in found.runs if one["agent"] == agent and len(one["models"]) == 1]
    seconds = [sum(one["seconds"].values()) - one["seconds"]["collecting"] for one in runs]
    return {
        "agent": agent,
        "runs": len(runs),
        "iterations": max((one["iterations"] for one in runs), default=0),
        "environment_steps": spread([one["environment_steps"] for one in runs]),
        "seconds": spread(seconds),
    }


def curve(found: Found, model: str, agent: str) -> dict[str, Any]:
    """Compute the mean return of each iteration, with its spread over the seeds (Fig. 4.4).

    As in the thesis, returns are scaled so that the least over all seeds is 0 and the greatest is
    1. This makes models comparable.
    """
    runs = [one["training"] for one in found.own_runs(model, agent)]
    returns = [[point["mean_return"] for point in run] for run in runs]
    least = min((value for run in returns for value in run), default=0.0)
    most = max((value for run in returns for value in run), default=0.0)
    points = list(zip(*runs, strict=True))
    found_spreads = [
        spread([(one["mean_return"] - least) / (most - least or 1.0) for one in each])
        for each in points
    ]
    return {
        "model": model,
        "agent": agent,
        "returns": [least, most],
        "environment_steps": [
            statistics.fmean(one["environment_steps"] for one in each) for each in points
        ],
        "normalised": found_spreads,
    }


def _correlation(walk: Record) -> dict[str, Any]:
    graphs = walk["graphs"]
    return {
        "model": walk["model"],
        "graphs": len(graphs),
        "measured": sum(MEASURED in one for one in graphs),
        "spearman": correlations(graphs),
        "points": graphs,
    }


def rewards(found: Found, model: str, agent: str, usual: str) -> dict[str, Any]:
    """Compute the costs that policies reach if they learn with other rewards (Fig. 4.6)."""
    rows = []
    for symbol in sorted({*SYMBOLS, usual}):
        reward = "" if symbol == usual else symbol
        plays = found.own_plays(model, agent, reward)
        runs = [one["evaluations"] for one in found.own_runs(model, agent, reward)]
        points = list(zip(*runs, strict=True))
        rows.append(
            {
                "reward": symbol,
                "ratio": spread([ratio(one) for one in plays]),
                "runs": len(plays),
                "iterations": [each[0]["iteration"] for each in points],
                "costs": [spread([one["cost"] for one in each]) for each in points],
            }
        )
    return {"model": model, "agent": agent, "rows": rows}


def substitutions(found: Found, model: str, agent: str) -> dict[str, float]:
    """Count how often each rule is on the path to the best graph, mean of the seeds (Fig. 4.11)."""
    plays = found.own_plays(model, agent)
    counts = collections.Counter(xfer for one in plays for xfer, _ in one["path"])
    return {xfer: count / len(plays) for xfer, count in sorted(counts.items())}


def _by_method(records: Sequence[Record], model: str, name: str) -> dict[str, Any]:
    chosen = {one["method"]: one[name] for one in records if one["model"] == model}
    return {"model": model, "methods": chosen}


def generalisation(found: Found, models: Sequence[str], agent: str) -> dict[str, Any]:
    """Compute what one policy for half of the models gains on the other half, which it never saw.

    A gain is the part of a model's cost that is saved, as the median over the seeds. A share is a
    gain divided by the gain of the policies that were trained on the model itself; the shares of
    the last row are those of the mean gains. The rows also say what chance gains with as many
    steps.
    """
    trained, unseen = halves(models)
    rows = []
    for model in unseen:
        own = [1 - ratio(one) for one in found.own_plays(model, agent)]
        row: dict[str, Any] = {"model": model, "own": spread(own)}
        for name, in_disguise in (("general", False), ("disguised", True)):
            plays = [
                one
                for one in found.plays
                if (one["model"], one["in_disguise"]) == (model, in_disguise)
                and one["trained_on"] == list(trained)
            ]
            row[name] = spread([1 - ratio(one) for one in plays])
        by_chance = [
            one for one in found.searches if (one["model"], one["method"]) == (model, CHANCE)
        ]
        row[CHANCE] = spread([1 - ratio(one) for one in by_chance])
        rows.append({**row, **_shares(row)})
    complete = [row for row in rows if row["own"] and row["general"] and row["disguised"]]
    means = {
        name: {"median": statistics.fmean(row[name]["median"] for row in complete)}
        if complete and all(row[name] for row in complete)
        else None
        for name in _GAINS
    }
    general = [one for one in found.runs if one["models"] == list(trained)]
    return {
        "agent": agent,
        "trained_on": list(trained),
        "environment_steps": spread([one["environment_steps"] for one in general]),
        "rows": rows,
        "mean": {**means, **_shares(means)} if complete else None,
    }


def _shares(gains: Mapping[str, Any]) -> dict[str, float | None]:
    own = gains["own"]["median"] if gains["own"] else 0.0
    return {
        f"{name}_share": gains[name]["median"] / own if own and gains[name] else None
        for name in _GAINS[1:]
    }
