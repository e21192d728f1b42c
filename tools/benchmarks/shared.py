"""Helpers of the tools that make tables: arguments, records, parallel tasks, pictures, Markdown."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import pathlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from tfrl_systems.experiments import TrainingRun, find_system
from tfrl_systems.reporting import Reporter

Record = dict[str, Any]
Task = Callable[[], Record]
Do = Callable[[Sequence[Task]], Iterable[Record]]


def some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a list of some of the names, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if not set(found) <= set(names):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(names)}, found {text!r}")
        return found

    return parse


def identity_of(run: TrainingRun) -> dict[str, Any]:
    """Return everything that decides the outcome of a training run, as JSON values."""
    return run.identity(find_system(run.system).describe(run))


def kept(path: pathlib.Path, settings: Mapping[str, Any], make_fn: Task) -> Record:
    """Return the record that a file keeps; if there is none, make one and keep it.

    Args:
      path: the file.
      settings: what decides the record, as JSON values; kept with the record.
      make_fn: makes the record.

    Raises:
      UserError: the record in the file was made with other settings.
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
    """Write a record to its file, at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".unfinished")
    scratch.write_text(json.dumps(record, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)


@contextlib.contextmanager
def doing(jobs: int) -> Iterator[Do]:
    """Give a function that does tasks, `jobs` at a time, and returns their records in order."""
    if jobs == 1:
        yield lambda tasks: (task() for task in tasks)
        return
    # Processes are spawned, because a forked one would lack TensorFlow's threads.
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
    """Yield the records as they come, and report how many of `total` have come."""
    advance = reporter.task(label, total)
    for record in records:
        advance(1)
        yield record


@contextlib.contextmanager
def picture(path: pathlib.Path, size: tuple[float, float], font_size: float) -> Iterator[Any]:
    """Give a matplotlib figure, and write it as .png and .svg at the end.

    Args:
      path: the files, without their suffix.
      size: width and height in inches.
      font_size: usual size of text, in points.

    Raises:
      UserError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib import figure
    except ImportError as error:
        raise UserError(
            f"picture: expected matplotlib, found: {error}; pip install -e '.[notebooks]'"
        ) from error
    # The fixed salt and the missing date make equal pictures equal files.
    with matplotlib.rc_context({"svg.hashsalt": "tfrl", "font.size": font_size}):
        drawn = figure.Figure(figsize=size, layout="constrained")
        yield drawn
        drawn.savefig(path.with_suffix(".png"), dpi=160)
        drawn.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def commit() -> str:
    """Return the commit of this checkout, or "unknown"."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown. The first column is aligned left, the others right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])
