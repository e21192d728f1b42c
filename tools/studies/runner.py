"""Runs the trials of a study, keeps what they measured, and goes on where it was stopped.

OUTPUT gets a file for each trial in records/, the trials' own files in runs/, and the tables and
pictures that are made of all records.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import json
import multiprocessing
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from environments.errors import UsageError, UserError
from tfrl_systems.experiments import Reporter
from tools.studies import writing
from tools.studies.study import Record, Study, Trial

# name -> (module, attribute)
STUDIES: dict[str, tuple[str, str]] = {
    "agents": ("agents", "AGENTS"),
    "quality": ("learn_to_optimize", "QUALITY"),
    "samplers": ("learn_to_optimize", "SAMPLERS"),
    "few_evaluations": ("contextual", "FEW_EVALUATIONS"),
    "unseen": ("learn_to_optimize", "UNSEEN"),
    "folds": ("inlining", "FOLDS"),
    "baselines": ("inlining", "BASELINES"),
    "ladder": ("ladder", "LADDER"),
    "graphs": ("graphs", "GRAPHS"),
    "unmeasured": ("graphs", "UNMEASURED"),
    "files": ("files", "FILES"),
    "pools": ("pools", "POOLS"),
    "long_runs": ("long_runs", "LONG_RUNS"),
    "faults": ("faults.campaign", "FAULTS"),
    "bad_inputs": ("bad_inputs.campaign", "BAD_INPUTS"),
}


def find_study(name: str) -> Study:
    """Return the study of a name.

    Raises:
      UsageError: there is none.
    """
    if name not in STUDIES:
        raise UsageError(f"expected one of {', '.join(STUDIES)}; found {name!r}")
    module, attribute = STUDIES[name]
    return getattr(importlib.import_module(f"tools.studies.{module}"), attribute)


def commit() -> str:
    """Return the commit of this checkout, or "unknown"."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(
        command, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def record_of(name: str, trial: Trial, output: pathlib.Path) -> Record:
    """Return the record of a trial that a file keeps; if there is none, measure it.

    Workers get a study by its name, since it holds functions.

    Raises:
      UserError: the file keeps a record of another trial.
    """
    path = output / "records" / f"{trial.name}.json"
    about = json.loads(json.dumps(trial.about))
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["about"] != about:
            raise UserError(
                f"{path}: expected a record with these settings, found one with others; name "
                "another directory with --output"
            )
        return record
    began_s = time.monotonic()
    measured = find_study(name).measure(trial.about, output / "runs" / trial.name)
    record = {
        **{"about": about, "measured": measured, "commit": commit()},
        "wall_s": time.monotonic() - began_s,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".unfinished")
    scratch.write_text(json.dumps(record, allow_nan=False) + "\n", encoding="utf-8")
    # At once or not at all: a record that is there is whole.
    scratch.replace(path)
    return record


@contextlib.contextmanager
def _mapping(jobs: int, is_alone: bool) -> Iterator[Callable[..., Iterator[Record]]]:
    """Give a function like `map` that makes `jobs` calls at a time."""
    if jobs == 1 and not is_alone:
        yield map
        return
    # Processes are spawned, because a forked one would lack TensorFlow's threads.
    executor = concurrent.futures.ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1 if is_alone else None,
    )
    with executor:
        try:
            yield executor.map
        finally:
            executor.shutdown(cancel_futures=True)


def run(
    name: str, options: Any, output: pathlib.Path, command: str, jobs: int, reporter: Reporter
) -> list[Record]:
    """Measure the trials that have no record yet; write tables after each, pictures in the end.

    Args:
      name: name of the study.
      options: an instance of its `options`.
      output: directory of all that is written.
      command: what makes the same tables again.
      jobs: how many trials are measured at a time.
      reporter: receives the progress.

    Returns:
      What each trial was about and what it came to, in order.

    Raises:
      UserError: a trial cannot be measured.
    """
    study = find_study(name)
    trials = list(study.trials(options))
    advance = reporter.task(name, len(trials))
    records: list[Record] = []
    count = len(trials)
    with _mapping(jobs, study.is_alone) as map_fn:
        for record in map_fn(record_of, [name] * count, trials, [output] * count):
            records.append(record)
            advance(1)
            _write_tables(study, records, output, command)
    rows = [flat(record) for record in records]
    if study.picture is not None:
        try:
            writing.draw(study.picture, rows, output)
        except ImportError as error:
            message = f"{study.picture.name}: no picture without matplotlib: {error}"
            print(f"{message}; pip install -e '.[notebooks]'", file=sys.stderr)
    return rows


def flat(record: Record) -> Record:
    """Return what a record is about and what was measured, as one."""
    return {**record["about"], **record["measured"], "wall_s": record["wall_s"]}


def _write_tables(
    study: Study, records: Sequence[Record], output: pathlib.Path, command: str
) -> None:
    commits = ", ".join(sorted({record["commit"] for record in records}))
    shown = [flat(record) for record in records]
    parts = [f"`{command}`\n\nMeasured at {commits}."]
    parts += [writing.to_markdown(table, shown) for table in study.tables]
    (output / "table.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
