"""Memory, files and threads of runs that last for a day.

    python -m tools.benchmarks.long_runs --minutes 2 --corpus runs/corpus

runs each loop with tiny iterations, in this process, on pipes and on Ray, for some minutes after
its first iteration, and prints a table; --json prints all samples too. Every row is a process of
its own. Growth is the slope of a line through the samples of the last three fifths: before that,
graphs are traced, and what is bounded is filled. A day's growth is that of as many iterations as a
day has at the time of an iteration with the usual settings, which is measured too. Inlining needs a
corpus as `tools.fetch_corpus` makes it; without --corpus it is left out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import gc
import json
import multiprocessing
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from tfrl_systems import experiments
from tfrl_systems.drivers.collect import POOLS, Collect
from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.reporting import Advance, Reporter, Terminal
from tools import running
from tools.benchmarks import shared

_DAY_S = 24 * 3600
_NUM_SAMPLES = 20
_WARM_UP = 0.4
# So that a run ends when its time is over, and its curves are as sparse as those of a day.
_ITERATIONS = 1_000_000
_USUAL_ITERATIONS = 4
_LOOP = {"iterations": _ITERATIONS, "evaluate_every": 10, "checkpoint_every": 10, "num_chunks": 2}
_SPHERE = {"function": "shifted_sphere"}
_GRAPH = {"models": ["bert-tiny"], "objective": "analytic"}
_SMALL: dict[str, Any] = {"episodes_per_chunk": 4, "hidden_sizes": (8,)}
_DREAMING = {
    **{"memory_size": 8, "head_size": 8, "num_dreams": 16, "dream_updates": 1, "fit_updates": 1},
    **{"fit_episodes": 4, "max_replay_steps": 200, "random_share": 0.0},
}


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop to run for long.

    Attributes:
      system, agent: their names.
      problem: keyword arguments of `experiments.train`.
      settings: settings that make an iteration tiny.
    """

    system: str
    agent: str
    problem: Mapping[str, Any]
    settings: Mapping[str, Any]


LOOPS = {
    "ppo": Loop("learn_to_optimize", "ppo", _SPHERE, {**_SMALL, "num_epochs": 1}),
    "bc_max": Loop(
        "learn_to_optimize",
        "bc_max",
        _SPHERE,
        {**_SMALL, "updates": 2, "max_lesson_steps": 256},
    ),
    "es": Loop("learn_to_optimize", "es", _SPHERE, _SMALL),
    "world_model": Loop("learn_to_optimize", "world_model", _SPHERE, {**_SMALL, **_DREAMING}),
    "graph_ppo": Loop(
        "tensor_graphs",
        "ppo",
        _GRAPH,
        {"episodes_per_chunk": 1, "num_epochs": 1, "max_steps": 4},
    ),
    "inlining_ppo": Loop(
        "inlining",
        "ppo",
        {},
        {"episodes_per_chunk": 1, "max_bitcode_bytes": 20_000, "evaluate_every": 1000},
    ),
}


class _Enough(Exception):
    """The time of a run is over."""


class _Sampler(Reporter):
    """Samples the run that reports to it, and ends it."""

    def __init__(self, workdir: pathlib.Path, seconds: float, every: int) -> None:
        self.samples: list[dict[str, float]] = []
        self.times_s: list[float] = []
        self._workdir, self._seconds, self._most = workdir, seconds, every
        self._next_s = 0.0

    def task(self, label: str, total: int) -> Advance:
        """See `Reporter.task`; only iterations count."""
        return self._advance if label == "iterations" else super().task(label, total)

    def _advance(self, count: int) -> None:
        self.times_s.append(time.monotonic())
        now_s = self.times_s[-1] - self.times_s[0]
        if now_s >= self._next_s:
            self._next_s += self._seconds / _NUM_SAMPLES
            self.samples.append({"iteration": len(self.times_s), **sample(self._workdir)})
        if now_s >= self._seconds or len(self.times_s) == self._most:
            raise _Enough


def sample(workdir: pathlib.Path) -> dict[str, float]:
    """Return memory of this process and of its descendants in MiB, and counts of what is open."""
    gc.collect()
    files = [one for one in workdir.rglob("*") if one.is_file()]
    family = psutil.Process().children(recursive=True)
    return {
        "head_mib": _private_mib(os.getpid()),
        "workers_mib": sum(_private_mib(one.pid) for one in family),
        "disk_mib": sum(one.stat().st_size for one in files) / (1 << 20),
        "files": len(files),
        "open_files": _count("/proc/self/fd"),
        "threads": _count("/proc/self/task"),
    }


def _count(directory: str) -> int:
    return sum(1 for _ in pathlib.Path(directory).iterdir())


def _private_mib(process: int) -> float:
    """Return the memory that is backed by no file, so that it cannot be given back."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


@dataclasses.dataclass(frozen=True)
class Row:
    """A loop to run, and how.

    Attributes:
      loop: its name in `LOOPS`.
      kind: where experience is collected.
      minutes: how long it runs.
      seed: seed of everything random.
      corpus: corpus of inlining.
    """

    loop: str
    kind: str
    minutes: float
    seed: int
    corpus: pathlib.Path | None

    def __call__(self) -> shared.Record:
        """Run it; return the row."""
        tiny = self._run({**_LOOP, **LOOPS[self.loop].settings}, 60 * self.minutes, _ITERATIONS)
        usual = self._run({}, 60 * self.minutes, _USUAL_ITERATIONS)
        usual_s = statistics.median(np.diff(usual.times_s).tolist() or [float("nan")])
        return {
            "loop": self.loop,
            "collect": self.kind,
            "iterations": len(tiny.times_s),
            "usual_iteration_s": usual_s,
            "hours": len(tiny.times_s) * usual_s / 3600,
            "growth": {name: growth(tiny.samples, name) for name in tiny.samples[0]},
            "samples": tiny.samples,
        }

    def _run(self, settings: Mapping[str, Any], seconds: float, most: int) -> _Sampler:
        loop = LOOPS[self.loop]
        workers = 1 if self.kind == "inprocess" else 2
        problem = dict(loop.problem)
        if loop.system == "inlining":
            assert self.corpus is not None
            problem["corpus"] = self.corpus / "train"
        with tempfile.TemporaryDirectory() as directory:
            workdir = pathlib.Path(directory) / "run"
            sampler = _Sampler(workdir, seconds, most)
            if loop.system == "inlining":
                problem["cache"] = pathlib.Path(directory) / "compiles.db"
            with contextlib.suppress(_Enough):
                experiments.train(
                    loop.system,
                    agent=loop.agent,
                    workdir=workdir,
                    seed=self.seed,
                    settings=settings,
                    collect=Collect(self.kind, workers),
                    reporter=sampler,
                    **problem,
                )
        return sampler


def growth(samples: list[dict[str, float]], name: str) -> float:
    """Return by how much a figure grows in 1,000 iterations, after the warm-up."""
    late = samples[int(_WARM_UP * len(samples)) :]
    if len(late) < 2:
        return float("nan")
    iterations = [one["iteration"] for one in late]
    return float(np.polyfit(iterations, [one[name] for one in late], 1)[0]) * 1000


def table_of(rows: list[shared.Record]) -> str:
    """Format the rows in Markdown."""
    header = [
        "loop, collected by",
        "iterations",
        "hours at the usual settings",
        "head, MiB",
        "per 1,000",
        "per day",
        "workers, MiB",
        "per 1,000",
        "disk, MiB",
        "files",
        "open files",
        "threads",
    ]

    def cells(row: shared.Record) -> list[str]:
        last, grows = row["samples"][-1], row["growth"]
        a_day = grows["head_mib"] * _DAY_S / row["usual_iteration_s"] / 1000
        return [
            f"{row['loop']}, {row['collect']}",
            f"{row['iterations']:,}",
            f"{row['hours']:.1f}",
            f"{last['head_mib']:.0f}",
            f"{grows['head_mib']:+.2f}",
            f"{a_day:+.0f}",
            f"{last['workers_mib']:.0f}",
            f"{grows['workers_mib']:+.2f}",
            f"{last['disk_mib']:.2f}",
            f"{last['files']:.0f}",
            f"{last['open_files']:.0f}",
            f"{last['threads']:.0f}",
        ]

    return shared.markdown_table(header, [cells(row) for row in rows])


def _run(options: argparse.Namespace) -> None:
    rows: list[shared.Record] = []
    try:
        _measure(options, rows)
    finally:  # What was measured until then took long.
        about = {
            "command": shlex.join(["python", "-m", "tools.benchmarks.long_runs", *sys.argv[1:]]),
            "seed": options.seed,
            "commit": shared.commit(),
        }
        print(json.dumps({**about, "rows": rows}) if options.json else table_of(rows))


def _measure(options: argparse.Namespace, rows: list[shared.Record]) -> None:
    reporter = Terminal()
    context = multiprocessing.get_context("spawn")
    for name in options.loops:
        if name == "inlining_ppo" and options.corpus is None:
            continue
        for kind in options.collect:
            row = Row(name, kind, options.minutes, options.seed, options.corpus)
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
                rows.append(executor.submit(row).result())
            reporter.say(f"{name}, {kind}: {rows[-1]['iterations']} iterations")


def main() -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.long_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # fmt: off
    parser.add_argument(
        "--loops", type=shared.some_of(tuple(LOOPS)), default=tuple(LOOPS), metavar="A,B",
        help=f"some of {','.join(LOOPS)} (default: all)",
    )
    parser.add_argument(
        "--collect", type=shared.some_of(tuple(POOLS)), default=tuple(POOLS), metavar="A,B",
        help=f"some of {','.join(POOLS)} (default: all)",
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, metavar="N", help="of each row (default: 2)"
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="N")
    parser.add_argument("--corpus", type=pathlib.Path, metavar="DIR", help="of inlining")
    parser.add_argument("--json", action="store_true", help="print all samples as JSON")
    # fmt: on
    return running.exit_status(_run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
