"""What a learned policy gains in the search for a cheaper graph, beside searches without one.

    python -m tools.benchmarks.graph_search_tables --output runs/led --models bert-base,resnet-50
        --policies runs/graphs/policy --seeds 3 --seconds 1,4,15,60 --objective analytic

For each model it compares

  regions         our search
  episode         the policy's likeliest steps, until they are hopeless
  policy          episodes of the policy, as `tfrl optimize --method policy` plays them
  led             our search led by the policy, as `tfrl optimize --policy` does it
  chance          episodes in which all actions are equally likely, played like those of the policy

by what they save of the estimated cost in so many seconds, and by the expansions after which they
have come to the cost that regions comes to in the end. The clock counts a policy's decisions. Costs
that are measured are kept, so the first search on a model pays for the others: run the tool twice
with other directories, or use the objective "analytic".

--output gets table.md and a file for each search. If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import pathlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.search import INTERRUPTED, Budget, Result
from environments.tensor_graphs.search.episodes import Guide, likeliest, patience_with
from environments.tensor_graphs.search.record import Record
from tfrl_systems.experiments.arguments import add_fields, read_fields, whole_number
from tfrl_systems.reporting import Terminal
from tfrl_systems.systems.tensor_graphs.player import PolicyPlayer
from tfrl_systems.systems.tensor_graphs.policy import Chance, GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting, find_model
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.tensor_graphs.cases import slug
from tools.benchmarks.tensor_graphs.disguise import disguised

REGIONS, EPISODE, POLICY, LED, CHANCE = "regions", "episode", "policy", "led", "chance"
# These draw actions, the others do not.
_DRAWN = (POLICY, CHANCE)
# Costs are sums of many numbers.
_EQUAL = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class Search:
    """A task: search for a cheaper graph of a model.

    Attributes:
      model: name of the model, or its file.
      how: one of regions, episode, policy, led and chance.
      policy: directory of the policy; chance plays in its environment; regions needs none.
      seed: seed of the actions that are drawn.
      seconds: the most time that the search may take.
      rewriting: rules and objective.
      output: directory of the records.
      disguise: seed of the order of the model's nodes, see `disguised`; None for its own.
    """

    model: str
    how: str
    policy: pathlib.Path | None
    seed: int
    seconds: float
    rewriting: Rewriting
    output: pathlib.Path
    disguise: int | None = None

    def __call__(self) -> shared.Record:
        """Search, unless there is a record of it; return the record."""
        digest = _digest(self.policy) if self.policy else ""
        decided = {
            **{"model": self.model, "how": self.how, "policy": digest, "seed": self.seed},
            **{"seconds": self.seconds, "objective": self.rewriting.objective},
            "rules": str(self.rewriting.rules or ""),
            **{"dimensions": dict(self.rewriting.dimensions), "disguise": self.disguise},
        }
        name = "-".join((slug(self.model), self.how, digest[:8], str(self.seed)))
        return shared.kept(self.output / "searches" / f"{name}.json", decided, self._made)

    def _made(self) -> shared.Record:
        found = self._search(_problem(self.model, self.rewriting, self.disguise))
        if found.stopped == INTERRUPTED:
            # What was found before Ctrl-C must not be kept as a record.
            raise KeyboardInterrupt
        return {
            **{"model": self.model, "how": self.how, "seed": self.seed},
            "policy": str(self.policy or ""),
            "start_cost_ms": found.start_cost_ms,
            "cost_ms": found.best.cost_ms,
            "expansions": found.expansions,
            "stopped": found.stopped,
            "gains": [[one.seconds, one.expansions, one.best_cost_ms] for one in found.gains],
        }

    def _search(self, problem: GraphProblem) -> Result:
        budget = Budget(self.seconds)
        if self.policy is None:
            return problem.search(REGIONS, budget)
        policy = GraphPolicy.load(self.policy, self.seed)
        if self.how == LED:
            return problem.search(REGIONS, budget, policy)
        if self.how == CHANCE:
            policy = GraphPolicy(Chance(), policy.settings, self.seed)
        if self.how == EPISODE:
            about = (problem.name, problem.graph, problem.rules, problem.objective)
            record = Record(EPISODE, problem.start, budget)
            return record.run(_play, guide=PolicyPlayer(policy, *about))
        return problem.search("policy", budget, policy, sys.maxsize)


def _play(record: Record, guide: Guide) -> None:
    state: Any = record.best.state
    for _ in likeliest(record, guide, record.best, patience_with(state.graph)):
        pass


@functools.lru_cache(maxsize=1)
def _problem(model: str, rewriting: Rewriting, disguise: int | None) -> GraphProblem:
    problem = GraphProblem.of(model, find_model(model), rewriting)
    if disguise is None:
        return problem
    return dataclasses.replace(problem, name="disguised", graph=disguised(problem.graph, disguise))


@functools.cache
def _digest(directory: pathlib.Path) -> str:
    """Return a hash of a policy's files."""
    files = sorted(one for one in directory.rglob("*") if one.is_file())
    if not files:
        raise UserError(f"{directory}: expected the directory of a policy, found no files in it")
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()


def tasks_of(options: argparse.Namespace) -> Iterator[Search]:
    """Yield all searches; those on a model come one after another."""
    rewriting = Rewriting(**read_fields(options, Rewriting))
    ways = [(REGIONS, None)]
    ways += [(how, one) for one in options.policies for how in (EPISODE, POLICY, LED)]
    ways += [(CHANCE, options.policies[0])]
    for model in options.models:
        for how, policy in ways:
            for seed in range(options.seeds if how in _DRAWN else 1):
                most_s = max(options.seconds)
                about = (rewriting, options.output, options.disguised)
                yield Search(model, how, policy, seed, most_s, *about)


def run(options: argparse.Namespace) -> None:
    """Do the searches that have no record yet, and write the tables."""
    tasks = list(tasks_of(options))
    with Terminal() as terminal, shared.doing(options.jobs) as do:
        found = list(shared.followed(do(tasks), len(tasks), terminal, "searches"))
    about = f"`{options.command_line}` at {shared.commit()}"
    text = "\n\n".join((about, table(found, options.seconds), summary(found))) + "\n"
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def table(found: Sequence[shared.Record], seconds: Sequence[float]) -> str:
    """Return a row for each model and way: savings in %, and expansions; medians and ranges."""
    rows = []
    for model in dict.fromkeys(one["model"] for one in found):
        of_model = [one for one in found if one["model"] == model]
        target_ms = _of_regions(of_model)["cost_ms"]
        for way, records in _by_way(of_model).items():
            savings = [_spread([saved(one, limit) for one in records], ".2f") for limit in seconds]
            needed = [expansions_to(one, target_ms) for one in records]
            rows.append([f"{model}, {way}", *savings, _spread(needed, ".0f")])
    header = ["saved, %", *(f"{limit:g} s" for limit in seconds), "expansions to regions' cost"]
    return shared.markdown_table(header, rows)


def summary(found: Sequence[shared.Record]) -> str:
    """Return a row for each way: on how many models it needs few of the expansions of regions.

    A way with several seeds counts by their median.
    """
    ratios: dict[str, list[float]] = {}
    for model in dict.fromkeys(one["model"] for one in found):
        of_model = [one for one in found if one["model"] == model]
        regions = _of_regions(of_model)
        needed = expansions_to(regions, regions["cost_ms"])
        for way, records in _by_way(of_model).items():
            if way != REGIONS and needed:
                own = [expansions_to(one, regions["cost_ms"]) for one in records]
                ratios.setdefault(way, []).append(statistics.median(own) / needed)
    rows = [
        [
            way,
            *(f"{sum(one <= limit for one in of_it)} of {len(of_it)}" for limit in (0.5, 1.0)),
            f"{sum(one < float('inf') for one in of_it)} of {len(of_it)}",
        ]
        for way, of_it in ratios.items()
    ]
    header = ["models where it reaches regions' cost", "with half", "with as many", "at all"]
    return shared.markdown_table(header, rows)


def saved(record: shared.Record, limit_s: float) -> float:
    """Return what a search had saved after some seconds, in % of the model's cost."""
    start_ms = record["start_cost_ms"]
    costs_ms = [cost_ms for seconds, _, cost_ms in record["gains"] if seconds <= limit_s]
    return 100 * (1 - costs_ms[-1] / start_ms) if costs_ms else 0.0


def expansions_to(record: shared.Record, target_ms: float) -> float:
    """Return the expansions after which a search had come to a cost; infinity if it never did."""
    if record["start_cost_ms"] <= target_ms * _EQUAL:
        return 0
    reached = (number for _, number, cost_ms in record["gains"] if cost_ms <= target_ms * _EQUAL)
    return next(reached, float("inf"))


def _of_regions(records: Sequence[shared.Record]) -> shared.Record:
    return next(one for one in records if one["how"] == REGIONS)


def _by_way(records: Sequence[shared.Record]) -> dict[str, list[shared.Record]]:
    """Group the records of a model by how was searched and by the policy."""
    found: dict[str, list[shared.Record]] = {}
    for one in records:
        with_policy = one["how"] not in (REGIONS, CHANCE)
        way = f"{one['how']} {one['policy']}" if with_policy else one["how"]
        found.setdefault(way, []).append(one)
    return found


def _spread(values: Sequence[float], form: str) -> str:
    def told(value: float) -> str:
        return format(value, form) if value < float("inf") else "never"

    most, least = told(max(values)), told(min(values))
    median = told(statistics.median(values))
    return median if most == least else f"{median} ({least}..{most})"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    many: dict[str, Any] = {"required": True, "metavar": "NAME,..."}
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--models", type=lambda text: tuple(text.split(",")), **many)
    parser.add_argument(
        "--policies",
        type=lambda text: tuple(map(pathlib.Path, text.split(","))),
        required=True,
        metavar="DIR,...",
        help="directories of learned policies",
    )
    parser.add_argument(
        "--seconds",
        type=lambda text: tuple(map(float, text.split(","))),
        default=(1.0, 4.0, 15.0, 60.0),
        metavar="N,...",
        help="the last is the time for each search (default: 1,4,15,60)",
    )
    parser.add_argument("--seeds", type=whole_number(1), default=3, help="0, 1, …; default: 3")
    parser.add_argument(
        "--disguised",
        type=whole_number(0),
        metavar="SEED",
        help="give each model's nodes other names and an order drawn with this seed",
    )
    parser.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    add_fields(parser, Rewriting)
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.graph_search_tables", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
