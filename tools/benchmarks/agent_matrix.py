"""Every agent on every system: what it comes to, in how many steps and how much time.

    python -m tools.benchmarks.agent_matrix --output runs/matrix --corpus runs/corpus

trains each agent once on a small problem of each system, and writes the table: --output gets
table.md, one file for each cell, and the training runs. If the tool was stopped, run it again to go
on. Inlining needs a corpus as `tools.fetch_corpus` makes it; without --corpus it is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import UsageError
from tfrl_systems import experiments
from tfrl_systems.agents.table import AGENTS
from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.reporting import Reporter, Terminal
from tools import running
from tools.benchmarks import shared

_REFUSED = "does not fit"


@dataclasses.dataclass(frozen=True)
class Case:
    """A small problem of a system.

    Attributes:
      unit: what the cells hold.
      problem: keyword arguments of `experiments.train`.
      evaluated: those of `experiments.evaluate`.
      baselines: policies to compare with, the best of them last.
      value_of: what `experiments.evaluate` found of one policy -> the number to show.
      iterations: rounds of the agents that are not to have their usual number.
      settings: settings that all agents take which have them.
    """

    unit: str
    problem: Mapping[str, Any]
    evaluated: Mapping[str, Any]
    baselines: tuple[str, ...]
    value_of: Callable[[Mapping[str, Any]], str]
    iterations: Mapping[str, int] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _saved(found: Mapping[str, Any]) -> str:
    return f"{-found['reduction_percent']:+.2f}%"


def _mse(found: Mapping[str, Any]) -> str:
    return f"{found['mse']:.2g}"


def _cost(found: Mapping[str, Any]) -> str:
    return f"{100 * (found['estimated_ms_after'] / found['estimated_ms_before'] - 1):+.2f}%"


def cases(corpus: pathlib.Path | None) -> dict[str, Case]:
    """Return the problems, by name of the system."""
    found = {
        "tensor_graphs": Case(
            "bert-tiny's estimated cost, one rollout",
            {"models": ["bert-tiny"], "objective": "analytic"},
            {"models": ["bert-tiny"], "objective": "analytic", "rollouts": 1},
            ("random", "greedy", "regions"),
            _cost,
            {"ppo": 12, "reinforce": 12},
        ),
        "learn_to_optimize": Case(
            "shifted Ackley, MSE",
            {"function": "shifted_ackley"},
            {"function": "shifted_ackley"},
            ("random", "constant", "scipy"),
            _mse,
        ),
    }
    if corpus is None:
        return found
    parts = {"corpus": corpus / "train", "holdout": corpus / "heldout"}
    inlining = Case(
        "held-out objects",
        parts,
        {"corpus": corpus / "heldout"},
        ("random", "default"),
        _saved,
        {"ppo": 20, "reinforce": 20, "es": 20},
        {"max_bitcode_bytes": 100_000, "evaluate_every": 20},
    )
    return {"inlining": inlining, **found}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task: train an agent on a system's case, and measure its policy.

    Attributes:
      system, agent: their names; the agent may be one of the case's baselines.
      corpus: see `cases`.
      seed: seed of everything random.
      iterations: rounds of collecting and learning; 0 for the case's number.
      output: directory of the records.
    """

    system: str
    agent: str
    corpus: pathlib.Path | None
    seed: int
    iterations: int
    output: pathlib.Path

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        name = f"{self.system}-{self.agent}-{self.seed}"
        decided = {**dataclasses.asdict(self), "output": "", "corpus": str(self.corpus)}
        return shared.kept(self.output / f"{name}.json", decided, lambda: self._made(name))

    def _made(self, name: str) -> shared.Record:
        case = cases(self.corpus)[self.system]
        about = {"system": self.system, "agent": self.agent}
        if self.agent in case.baselines:
            return {**about, "value": _measured(self.system, case, self.agent, self.seed)}
        record = experiments.find_system(self.system)
        if record.why_not(self.agent):
            return {**about, "value": _REFUSED}
        known = {
            field.name
            for made in record.settings(self.agent, None).values()
            for field in dataclasses.fields(made)
        }
        began_s = time.monotonic()
        run = experiments.train(
            self.system,
            agent=self.agent,
            workdir=self.output / "runs" / name,
            seed=self.seed,
            iterations=self.iterations or case.iterations.get(self.agent),
            settings={name: value for name, value in case.settings.items() if name in known},
            reporter=Reporter(),
            resume=True,
            **case.problem,
        )
        return {
            **about,
            "seconds": time.monotonic() - began_s,
            "steps": run.result["environment_steps"],
            "value": _measured(self.system, case, str(run.policy), self.seed),
        }


def _measured(system: str, case: Case, policy: str, seed: int) -> str:
    found = experiments.evaluate(
        system, policies=[policy], seed=seed, reporter=Reporter(), **case.evaluated
    )
    if "models" in found:
        (model,) = found["models"]
        return case.value_of({**model, **model["policies"][0]})
    return case.value_of(found["policies"][0])


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet, and write the table."""
    if options.corpus is not None and not options.corpus.is_dir():
        raise UsageError(f"--corpus: expected a directory, found {options.corpus}")
    asked = cases(options.corpus)
    tasks = [
        Cell(system, agent, options.corpus, options.seed, options.iterations, options.output)
        for system, case in asked.items()
        for agent in (*case.baselines, *options.agents)
    ]
    with Terminal() as terminal, shared.doing(options.jobs) as do:
        found = list(shared.followed(do(tasks), len(tasks), terminal, "cells"))
    text = f"`{options.command_line}` at {shared.commit()}\n\n{table(asked, found)}\n"
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def table(asked: Mapping[str, Case], found: Sequence[shared.Record]) -> str:
    """Return a row for each agent and baseline, and a column for each system."""
    cells = {(one["agent"], one["system"]): one for one in found}
    rows = [
        [agent, *(_cell(cells.get((agent, system))) for system in asked)]
        for agent in dict.fromkeys(agent for agent, _ in cells)
    ]
    header = ["agent", *(f"{system}: {case.unit}" for system, case in asked.items())]
    return shared.markdown_table(header, rows)


def _cell(one: shared.Record | None) -> str:
    if one is None:
        return ""
    if "steps" not in one:
        return str(one["value"])
    return f"{one['value']} ({one['steps']:,} steps, {one['seconds']:.0f} s)"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--corpus", type=pathlib.Path, metavar="DIR", help="for inlining")
    parser.add_argument(
        "--agents",
        type=shared.some_of(tuple(AGENTS)),
        default=tuple(AGENTS),
        metavar="NAMES",
        help=f"default: {','.join(AGENTS)}",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="S")
    parser.add_argument(
        "--iterations", type=whole_number(0), default=0, metavar="N", help="default: the case's"
    )
    parser.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.agent_matrix", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
