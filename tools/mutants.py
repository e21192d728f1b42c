"""Plant small errors in the two packages, and see which of them no test notices.

    python -m tools.mutants measure -o runs/mutants
    python -m tools.mutants plant -o runs/mutants --count 60 --seed 0

`measure` runs the suite once under coverage, and so learns which test runs which line, in child
processes too. Further arguments for pytest come after `--`. `plant` draws places of five kinds in
equal shares, and changes one after another in a copy of the checkout:

  sign      + for -, - for +, or a minus sign dropped
  bound     < for <=, > for >=, or the reverse; 1 added to a 0, 1 or 2 that is a subscript, the end
            of a slice, an argument of range, or compared with
  copy      x.copy(), list(x), dict(x), np.array(x), copy.copy(x) or copy.deepcopy(x) becomes x
  argument  the first two positional arguments of a call swapped
  check     a raise in an if dropped, a `not` in its test dropped, or a guard that is never true

Each mutant is tried with the tests that run its line, those in the file that mirrors the source
first. What runs for several tests, in a fixture of theirs or for what they are lent, is tried with
all of them. What runs at import, or only in processes that were killed, is tried with the tests of
the mirrored directory, and those beside it. A mutant is caught if a test that passes without it
fails or hangs.

OUTPUT/mutants.jsonl keeps the verdicts, and what is there is not run again. After a change of the
packages measure anew; after a change of the tests, into another directory.

To judge a new suite by an old one, measure the old checkout too:

    python -m tools.mutants measure -o runs/old --checkout ../old
    python -m tools.mutants plant -o runs/mutants --against ../old --against-measured runs/old

Mutants that nothing catches here are then tried there, if the line and its neighbours are there;
the exit status is 1 if any of them is caught.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import pathlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from environments.errors import UserError
from tools.benchmarks.shared import markdown_table
from tools.mutation import measuring
from tools.mutation.places import KINDS, Mutant, Source, draw, relocate
from tools.mutation.runs import sources
from tools.mutation.trials import Suite
from tools.running import exit_status

Record = dict[str, Any]
_ROOT = pathlib.Path(__file__).resolve().parents[1]
_VERDICTS = ("caught", "survived", "not run", "not judged")


class Verdicts:
    """The verdicts of a directory, which are written down as they come.

    Args:
      path: the file, JSON lines; made if it is missing.
      seed: of the draw.
    """

    def __init__(self, path: pathlib.Path, seed: int) -> None:
        self._path, self._seed = path, seed
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._records: list[Record] = [json.loads(line) for line in lines]

    def of(self, mutant: Mutant, suite: str, judge_fn: Callable[[Mutant], Record]) -> Record:
        """Return a mutant's record, from the file if it is there.

        Args:
          mutant: the mutant.
          suite: whose tests it is tried with: "" for this checkout's, or the path of another.
          judge_fn: returns the verdict.
        """
        identity = {
            "suite": suite, "seed": self._seed, "mutant": str(mutant), "column": mutant.column
        }  # fmt: skip
        for record in self._records:
            if identity.items() <= record.items() and record["verdict"] != "not judged":
                return record
        record = {**identity, "kind": mutant.kind, **judge_fn(mutant)}
        self._records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return record


def describe(record: Record) -> str:
    """Return a verdict in words."""
    match record["verdict"]:
        case "caught":
            how = " (timed out)" if record["timed_out"] else ""
            return f"caught by {record['by']}{how} in {record['seconds']:.0f} s"
        case "survived":
            return f"survived {record['num_tests']} tests in {record['seconds']:.0f} s"
        case "not judged":
            return f"not judged, pytest also fails without it: {record['by']}"
        case "not run":
            return "no test runs it"
        case verdict:
            return str(verdict)


def to_table(records: Sequence[Record]) -> str:
    """Return how many mutants of each kind came to which end, in Markdown."""
    counts = collections.Counter((record["kind"], record["verdict"]) for record in records)
    rows = [[kind, *(str(counts[kind, verdict]) for verdict in _VERDICTS)] for kind in KINDS]
    totals = [sum(record["verdict"] == verdict for record in records) for verdict in _VERDICTS]
    return markdown_table(["kind", *_VERDICTS], [*rows, ["all", *map(str, totals)]])


@contextlib.contextmanager
def _suite(checkout: pathlib.Path, output: pathlib.Path, limit_s: float) -> Iterator[Suite]:
    measured = measuring.Measured(output.resolve(), checkout)
    # Not below TMPDIR, whose path may be too long for the sockets of Ray.
    with tempfile.TemporaryDirectory(prefix="mutants-", dir="/tmp") as scratch:
        yield Suite(checkout, measured, pathlib.Path(scratch), limit_s)


class Session:
    """The mutants of a call of `plant`, tried in this checkout, and in an old one.

    Args:
      options: the command line's.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stream = sys.stderr if options.json else sys.stdout
        self._verdicts = Verdicts(options.output / "mutants.jsonl", options.seed)
        self._sources = sources(options.checkout)
        mutants = [
            mutant
            for path, text in self._sources.items()
            for mutant in Source(path, text).mutants()
        ]
        drawn = enumerate(draw(mutants, options.count, options.seed), 1)
        self._mutants = {n: mutant for n, mutant in drawn if not options.only or n in options.only}

    def try_here(self) -> dict[int, Record]:
        """Return the record of each mutant, by its number."""
        options = self._options
        with _suite(options.checkout, options.output, options.limit) as suite:
            return {
                number: self._judge(number, mutant, "", suite.judge)
                for number, mutant in self._mutants.items()
            }

    def try_there(self, numbers: Sequence[int]) -> dict[int, Record]:
        """Return the record of some mutants in the old checkout, by their numbers."""
        options, checkout = self._options, self._options.against
        old_sources = sources(checkout)
        records = {}
        with _suite(checkout, options.against_measured, options.limit) as suite:
            for number in numbers:
                mutant = self._mutants[number]
                old_source = old_sources.get(mutant.path, b"")
                old_mutant = relocate(mutant, self._sources[mutant.path], old_source)
                judge_fn = suite.judge if old_mutant else lambda _: {"verdict": "not there"}
                records[number] = self._judge(number, old_mutant or mutant, str(checkout), judge_fn)
        return records

    def _judge(
        self, number: int, mutant: Mutant, suite: str, judge_fn: Callable[[Mutant], Record]
    ) -> Record:
        where = f" in {suite}" if suite else ""
        print(f"{number:3}{where} {mutant}: ", end="", file=self._stream, flush=True)
        record = self._verdicts.of(mutant, suite, judge_fn)
        print(describe(record), file=self._stream, flush=True)
        return record


def plant(options: argparse.Namespace) -> None:
    """Try the drawn mutants; raise UserError if that cannot be done, or the old suite is better."""
    if (options.against is None) != (options.against_measured is None):
        raise UserError("expected --against and --against-measured, found only one of them")
    session = Session(options)
    records = session.try_here()
    counts = collections.Counter(record["verdict"] for record in records.values())
    uncaught = [n for n, record in records.items() if record["verdict"] in ("survived", "not run")]
    old_records = session.try_there(uncaught) if options.against and uncaught else {}
    old_counts = collections.Counter(record["verdict"] for record in old_records.values())
    if options.json:
        listings = {
            name: [{"number": number, **record} for number, record in some.items()]
            for name, some in (("mutants", records), ("against", old_records))
        }
        print(json.dumps({"seed": options.seed, **listings}))
    else:
        print(f"\n{to_table(list(records.values()))}\n")
        summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS)
        if options.against:
            summary += f"; of the {len(uncaught)} survived or not run the old suite catches "
            summary += f"{old_counts['caught']}, and {old_counts['not there']} are not there"
        print(summary)
    if old_counts["caught"]:
        raise UserError(f"expected to catch what the old suite does, missed {old_counts['caught']}")


def measure(options: argparse.Namespace) -> None:
    """Measure a checkout; raise UserError if that cannot be done."""
    failed = measuring.measure(options.checkout, options.output.resolve(), options.pytest)
    if failed:
        print(f"{len(set(failed))} tests fail without a mutant, and will catch none")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    texts: Any = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(**texts)
    commands = parser.add_subparsers(required=True, metavar="measure|plant")
    learn = commands.add_parser("measure", **texts, help="learn which tests run which lines")
    learn.add_argument("pytest", nargs="*", help="for pytest, after --, such as tests/environments")
    learn.set_defaults(run=measure)
    try_out = commands.add_parser("plant", **texts, help="try mutants")
    try_out.set_defaults(run=plant)
    try_out.add_argument("--count", type=int, default=60, help="how many to draw")
    try_out.add_argument("--seed", type=int, default=0, help="decides which are drawn")
    try_out.add_argument(
        "--only", type=int, nargs="+", metavar="N", help="of those, by their numbers; from 1"
    )
    try_out.add_argument(
        "--limit", type=float, default=180.0, metavar="SECONDS",
        help="for the tests of a mutant, beside three times what they took when measured",
    )  # fmt: skip
    try_out.add_argument("--json", action="store_true", help="print one JSON object")
    try_out.add_argument("--against", type=_checkout, metavar="DIR", help="an old checkout")
    try_out.add_argument(
        "--against-measured", type=pathlib.Path, metavar="DIR", help="what `measure` wrote of it"
    )
    for command in (learn, try_out):
        command.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="DIR")
        command.add_argument(
            "--checkout", type=_checkout, default=_ROOT, metavar="DIR", help="this one if not given"
        )
    return parser.parse_args(arguments)


def _checkout(text: str) -> pathlib.Path:
    return pathlib.Path(text).resolve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool, and return its exit status."""
    options = parse_arguments(arguments)
    # A shell has what it starts in the background ignore Ctrl-C; tests must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return exit_status(options.run, options)


if __name__ == "__main__":
    sys.exit(main())
