"""Every agent on every system: what it comes to, in how many steps and how much time."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.agents.table import AGENTS as NAMES
from tfrl_systems.settings import option
from tools.studies import learning
from tools.studies.study import Record, Records, Study, Table, Trial


@dataclasses.dataclass(frozen=True)
class Problem:
    """A small problem of a system.

    Attributes:
      unit: what the cells hold.
      learned_on: keyword arguments of `experiments.train`.
      evaluated_on: those of `experiments.evaluate`.
      baselines: policies to compare with, the best of them last.
      text_of: what `experiments.evaluate` found of a policy -> the text of its cell.
      iterations: rounds of the agents that are not to have their usual number.
      settings: settings of all agents that have them.
    """

    unit: str
    learned_on: Mapping[str, Any]
    evaluated_on: Mapping[str, Any]
    baselines: tuple[str, ...]
    text_of: Callable[[Mapping[str, Any]], str]
    iterations: Mapping[str, int] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _cost(evaluated: Mapping[str, Any]) -> str:
    (model,) = evaluated["models"]
    after_ms = model["policies"][0]["estimated_ms_after"]
    return f"{100 * (after_ms / model['estimated_ms_before'] - 1):+.2f}%"


_BERT = {"models": ["bert-tiny"], "objective": "analytic"}
_ACKLEY = {"function": "shifted_ackley"}
PROBLEMS = {
    "inlining": Problem(
        "held-out objects",
        {},
        {},
        ("random", "default"),
        lambda evaluated: f"{-evaluated['policies'][0]['reduction_percent']:+.2f}%",
        {"ppo": 20, "reinforce": 20, "es": 20},
        {"max_bitcode_bytes": 100_000, "evaluate_every": 20},
    ),
    "tensor_graphs": Problem(
        "bert-tiny's estimated cost, one rollout",
        _BERT,
        {**_BERT, "rollouts": 1},
        ("random", "greedy", "regions"),
        _cost,
        {"ppo": 12, "reinforce": 12},
    ),
    "learn_to_optimize": Problem(
        "shifted Ackley, MSE",
        _ACKLEY,
        _ACKLEY,
        ("random", "constant", "scipy"),
        lambda evaluated: f"{evaluated['policies'][0]['mse']:.2g}",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(learning.Options):
    """What is compared.

    Attributes:
      corpus: directory as `tools.fetch_corpus` makes it; inlining is left out without it.
      systems: a system to learn on, by default all; may be repeated.
    """

    agents: tuple[str, ...] = option(
        tuple(NAMES), flag="--agent", metavar="NAME", choices=tuple(NAMES)
    )
    seeds: int = option(1, metavar="N", minimum=1)
    corpus: pathlib.Path | None = option(None, metavar="DIR")
    systems: tuple[str, ...] = option(
        tuple(PROBLEMS), flag="--system", metavar="NAME", choices=tuple(PROBLEMS)
    )


def _trials(options: Options) -> Iterator[Trial]:
    for system in options.systems:
        if system == "inlining" and options.corpus is None:
            continue
        problem = PROBLEMS[system]
        for seed in range(options.seeds):
            for agent in (*problem.baselines, *options.agents):
                about = {
                    **{"system": system, "agent": agent, "seed": seed},
                    "iterations": options.iterations or problem.iterations.get(agent),
                    "settings": {**problem.settings, **options.assigned},
                    "corpus": str(options.corpus) if system == "inlining" else None,
                }
                yield Trial(f"{system}-{agent}-{seed}", about)


def _measure(about: Record, workdir: pathlib.Path) -> Record:
    system, agent = about["system"], about["agent"]
    problem = PROBLEMS[system]
    learned_on, evaluated_on = dict(problem.learned_on), dict(problem.evaluated_on)
    if about["corpus"]:
        parts = pathlib.Path(about["corpus"])
        learned_on = {"corpus": parts / "train", "holdout": parts / "heldout"}
        evaluated_on = {"corpus": parts / "heldout"}
    policy, figures = agent, dict[str, Any]()
    if agent not in problem.baselines:
        if experiments.find_system(system).why_not(agent):
            return {"text": "does not fit"}
        settings = learning.known_settings(system, agent, about["settings"])
        fitting = {**about, "settings": settings}
        policy, figures = learning.trained(fitting, workdir, **learned_on)
    evaluated = learning.evaluate(system, [policy], about["seed"], **evaluated_on)
    return {**figures, "text": problem.text_of(evaluated)}


def _cell(records: Records) -> str:
    return "; ".join(
        f"{record['text']} ({record['steps']:,} steps, {record['learning_s']:.0f} s)"
        if "steps" in record
        else str(record["text"])
        for record in records
    )


def _with_units(records: Records) -> Iterator[Record]:
    for record in records:
        yield {**record, "problem": f"{record['system']}: {PROBLEMS[record['system']].unit}"}


AGENTS = Study(
    """Every agent on every system: what it comes to, in how many steps and how much time.

Each agent learns on a small problem of each system. A rollout is an episode of likeliest actions,
followed by the steps that are known to save something.""",
    Options,
    _trials,
    _measure,
    [
        Table(
            "A column for each seed's policy of each agent.",
            ("agent",),
            {"": _cell},
            across="problem",
            derive=_with_units,
            label="agent",
        )
    ],
)
