"""What the tools that make tables share: arguments, kept records, tasks side by side, Markdown."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from tfrl_systems.experiments import TrainingRun, find_system
from tfrl_systems.experiments.reporting import Reporter

Record = dict[str, Any]
Task = Callable[[], Record]
Do = Callable[[Sequence[Task]], Iterable[Record]]


def exit_status(run: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Runs a tool; mistakes of the user end in one line."""
    try:
        run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


def some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A parser of some of the names, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if not set(found) <= set(names):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(names)}, found {text!r}")
        return found

    return parse


def identity_of(run: TrainingRun) -> dict[str, Any]:
    """All that decides what a training run comes to, as JSON values."""
    return run.identity(find_system(run.system).describe(run))


def kept(path: pathlib.Path, settings: Mapping[str, Any], make_fn: Task) -> Record:
    """The record that is kept in a file, or the one that `make_fn` makes, which then is kept.

    Raises:
      UserError: the kept one was made with other settings.
    """
    settings = json.loads(json.dumps(settings))
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["settings"] != settings:
            raise UserError(
                f"{path}: expected a record with these settings, found one with others; name "
                "another directory with --output"
            )
        return record
    record = {**make_fn(), "settings": settings}
    keep(path, record)
    return record


def keep(path: pathlib.Path, record: Record) -> None:
    """Writes a record to its file, at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".unfinished")
    scratch.write_text(json.dumps(record, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)


@contextlib.contextmanager
def doing(jobs: int) -> Iterator[Do]:
    """Does tasks, so many at a time; their records come in order."""
    if jobs == 1:
        yield lambda tasks: (task() for task in tasks)
        return
    # Not forked: TensorFlow's threads would not come along.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as executor:
        try:
            yield lambda tasks: executor.map(_do, tasks)
        finally:
            executor.shutdown(cancel_futures=True)


def _do(task: Task) -> Record:
    return task()


def followed(
    records: Iterable[Record], total: int, reporter: Reporter, label: str
) -> Iterator[Record]:
    """The records, as they come; `reporter` is told how many of `total` have."""
    advance = reporter.task(label, total)
    for record in records:
        advance(1)
        yield record


def commit() -> str:
    """Of this checkout, or "unknown"."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])
