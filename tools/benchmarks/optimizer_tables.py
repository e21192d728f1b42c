"""Learned optimisers of functions that nobody tuned on, alone and polished.

    python -m tools.benchmarks.optimizer_tables --output runs/optimizers

trains each agent with its usual settings on two functions whose minimum moves with c
(`wandering.py`), and measures the errors of its answers, alone and after at most ten more
evaluations. --output gets table.md, one file for each run, and the training runs. If the tool was
stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.reporting import Reporter, Terminal
from tools import running
from tools.benchmarks import shared, wandering

AGENTS = ("ppo", "reinforce", "es", "bc_max")
# Name of the function, and n.
_FUNCTIONS = {"wandering": 2, "rotated": 3}
_POLISH = 10


@dataclasses.dataclass(frozen=True)
class Learn:
    """A task: learn a function, and measure the policy.

    Attributes:
      agent: the agent.
      function: name of the function.
      seed: seed of everything random.
      iterations: rounds of collecting and learning; 0 for the usual number.
      output: directory of the records.
    """

    agent: str
    function: str
    seed: int
    iterations: int
    output: pathlib.Path

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        name = f"{self.agent}-{self.function}-{self.seed}"
        decided = {**dataclasses.asdict(self), "output": ""}
        return shared.kept(self.output / f"{name}.json", decided, lambda: self._made(name))

    def _made(self, name: str) -> shared.Record:
        about: dict[str, Any] = {
            "function": f"{wandering.__name__}:{self.function}",
            "dimensions": _FUNCTIONS[self.function],
        }
        began_s = time.monotonic()
        run = experiments.train(
            "learn_to_optimize",
            agent=self.agent,
            workdir=self.output / "runs" / name,
            seed=self.seed,
            iterations=self.iterations or None,
            reporter=Reporter(),
            resume=True,
            **about,
        )
        seconds = time.monotonic() - began_s
        found = {}
        for polish in (0, _POLISH):
            evaluated = experiments.evaluate(
                "learn_to_optimize",
                policies=[run.policy],
                polish=polish,
                reporter=Reporter(),
                **about,
            )
            found[f"mse_{polish}"] = evaluated["policies"][0]["mse"]
        return {"agent": self.agent, "function": self.function, "seconds": seconds, **found}


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet, and write the table."""
    tasks = [
        Learn(agent, function, seed, options.iterations, options.output)
        for function in _FUNCTIONS
        for agent in options.agents
        for seed in range(options.seeds)
    ]
    with Terminal() as terminal, shared.doing(options.jobs) as do:
        found = list(shared.followed(do(tasks), len(tasks), terminal, "learned"))
    text = f"`{options.command_line}` at {shared.commit()}\n\n{table(found)}\n"
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def table(found: Sequence[shared.Record]) -> str:
    """Return medians and ranges of the errors over seeds."""
    rows = []
    for function, agent in dict.fromkeys((one["function"], one["agent"]) for one in found):
        of_it = [one for one in found if (one["function"], one["agent"]) == (function, agent)]
        rows.append(
            [
                f"{function}, {agent}",
                *(_spread([one[f"mse_{polish}"] for one in of_it]) for polish in (0, _POLISH)),
                f"{statistics.fmean(one['seconds'] for one in of_it):.0f}",
            ]
        )
    return shared.markdown_table(["MSE", "policy", f"polished, {_POLISH}", "s"], rows)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2g} ({min(values):.2g}..{max(values):.2g})"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument(
        "--agents",
        type=shared.some_of(AGENTS),
        default=AGENTS,
        metavar="NAMES",
        help=f"default: {','.join(AGENTS)}",
    )
    parser.add_argument("--seeds", type=whole_number(1), default=5, help="0, 1, …; default: 5")
    parser.add_argument(
        "--iterations", type=whole_number(0), default=0, metavar="N", help="default: as usual"
    )
    parser.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.optimizer_tables", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
