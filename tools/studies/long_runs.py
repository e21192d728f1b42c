"""Memory, files and threads of runs that last for a day."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import psutil

from tfrl_systems import experiments
from tfrl_systems.drivers.collect import POOLS, Collect
from tfrl_systems.reporting import Advance, Reporter
from tfrl_systems.settings import option
from tools.studies.study import Record, Study, Table, Trial, first

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


class Loop(NamedTuple):
    """A loop to run for long: arguments of `experiments.train`, and settings of tiny iterations."""

    system: str
    agent: str
    problem: Mapping[str, Any]
    settings: Mapping[str, Any]


_OPTIMIZE, _TINY = "learn_to_optimize", {"episodes_per_chunk": 1}
LOOPS = {
    "ppo": Loop(_OPTIMIZE, "ppo", _SPHERE, {**_SMALL, "num_epochs": 1}),
    "bc_max": Loop(_OPTIMIZE, "bc_max", _SPHERE, {**_SMALL, "updates": 2, "max_lesson_steps": 256}),
    "es": Loop(_OPTIMIZE, "es", _SPHERE, _SMALL),
    "world_model": Loop(_OPTIMIZE, "world_model", _SPHERE, {**_SMALL, **_DREAMING}),
    "graph_ppo": Loop("tensor_graphs", "ppo", _GRAPH, {**_TINY, "num_epochs": 1, "max_steps": 4}),
    "inlining_ppo": Loop(
        "inlining", "ppo", {}, {**_TINY, "max_bitcode_bytes": 20_000, "evaluate_every": 1000}
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongRuns:
    """Which loops are run, and how long.

    Attributes:
      loops: name of a loop; may be repeated.
      kinds: where experience is collected; may be repeated.
      minutes: of each loop, after its first iteration.
      seed: seed of everything random.
      corpus: directory as `tools.fetch_corpus` makes it; inlining is left out without it.
    """

    loops: tuple[str, ...] = option(
        tuple(LOOPS), flag="--loop", metavar="NAME", choices=tuple(LOOPS)
    )
    kinds: tuple[str, ...] = option(
        tuple(POOLS), flag="--collect", metavar="KIND", choices=tuple(POOLS)
    )
    minutes: float = option(2.0, metavar="N", positive=True)
    seed: int = option(0, metavar="S", minimum=0)
    corpus: pathlib.Path | None = option(None, metavar="DIR")


def _trials(options: LongRuns) -> Iterator[Trial]:
    for name in options.loops:
        if LOOPS[name].system == "inlining" and options.corpus is None:
            continue
        for kind in options.kinds:
            about = {"loop": name, "collect": kind, "minutes": options.minutes}
            corpus = str(options.corpus) if LOOPS[name].system == "inlining" else None
            yield Trial(f"{name}-{kind}", {**about, "seed": options.seed, "corpus": corpus})


class _Enough(Exception):
    """The time of a run is over."""


class _Sampler(Reporter):
    """Samples the run that reports to it, and ends it."""

    def __init__(self, workdir: pathlib.Path, seconds: float, most: int) -> None:
        self.samples: list[dict[str, float]] = []
        self.times_s: list[float] = []
        self._workdir, self._seconds, self._most = workdir, seconds, most
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
    files = [path for path in workdir.rglob("*") if path.is_file()]
    family = psutil.Process().children(recursive=True)
    return {
        "head_mib": _private_mib(os.getpid()),
        "workers_mib": sum(_private_mib(process.pid) for process in family),
        "disk_mib": sum(path.stat().st_size for path in files) / (1 << 20),
        "files": len(files),
        "open_files": len(list(pathlib.Path("/proc/self/fd").iterdir())),
        "threads": len(list(pathlib.Path("/proc/self/task").iterdir())),
    }


def _private_mib(process: int) -> float:
    """Return the memory that is backed by no file, so that it cannot be given back."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _measure(about: Record, _: pathlib.Path) -> Record:
    seconds, tiny_settings = 60 * about["minutes"], {**_LOOP, **LOOPS[about["loop"]].settings}
    tiny = _sampled(about, tiny_settings, seconds, _ITERATIONS)
    usual = _sampled(about, {}, seconds, _USUAL_ITERATIONS)
    steps_s = np.diff(usual.times_s).tolist()
    usual_s = statistics.median(steps_s) if steps_s else None
    return {
        "iterations": len(tiny.times_s),
        "usual_iteration_s": usual_s,
        "growth": {name: growth(tiny.samples, name) for name in tiny.samples[0]},
        "samples": tiny.samples,
    }


def _sampled(about: Record, settings: Mapping[str, Any], seconds: float, most: int) -> _Sampler:
    loop, kind = LOOPS[about["loop"]], about["collect"]
    problem = dict(loop.problem)
    with tempfile.TemporaryDirectory() as directory:
        workdir = pathlib.Path(directory) / "run"
        sampler = _Sampler(workdir, seconds, most)
        if about["corpus"]:
            problem["corpus"] = pathlib.Path(about["corpus"]) / "train"
            problem["cache"] = pathlib.Path(directory) / "compiles.db"
        with contextlib.suppress(_Enough):
            experiments.train(
                loop.system,
                agent=loop.agent,
                workdir=workdir,
                seed=about["seed"],
                settings=settings,
                collect=Collect(kind, 1 if kind == "inprocess" else 2),
                reporter=sampler,
                **problem,
            )
    return sampler


def growth(samples: list[dict[str, float]], name: str) -> float | None:
    """Return by how much a figure grows in 1,000 iterations, after the warm-up; None if unknown."""
    late = samples[int(_WARM_UP * len(samples)) :]
    if len(late) < 2:
        return None
    iterations = [point["iteration"] for point in late]
    return float(np.polyfit(iterations, [point[name] for point in late], 1)[0]) * 1000


def _last(name: str) -> Callable[[Record], Any]:
    return lambda record: record["samples"][-1][name]


def _growth(name: str) -> Callable[[Record], Any]:
    return lambda record: record["growth"][name]


def _a_day(record: Record) -> float | None:
    grows, usual_s = record["growth"]["head_mib"], record["usual_iteration_s"]
    return None if grows is None or not usual_s else grows * _DAY_S / usual_s / 1000


LONG_RUNS = Study(
    """Memory, files and threads of runs that last for a day.

Runs each loop with tiny iterations, in this process, on pipes and on Ray, for some minutes after
its first iteration. Growth is the slope of a line through the samples of the last three fifths:
before that, graphs are traced, and what is bounded is filled. A day's growth is that of as many
iterations as a day has at the time of an iteration with the usual settings.""",
    LongRuns,
    _trials,
    _measure,
    [
        Table(
            "Memory is what no file backs, in MiB; its growth is that in 1,000 iterations.",
            ("loop", "collect"),
            {
                "iterations": first("iterations", "{:,}"),
                "head": first(_last("head_mib"), "{:.0f}"),
                "per 1,000": first(_growth("head_mib"), "{:+.2f}"),
                "per day": first(_a_day, "{:+.0f}"),
                "workers": first(_last("workers_mib"), "{:.0f}"),
                "workers per 1,000": first(_growth("workers_mib"), "{:+.2f}"),
                "disk": first(_last("disk_mib"), "{:.2f}"),
                **{
                    name.replace("_", " "): first(_last(name), "{:.0f}")
                    for name in ("files", "open_files", "threads")
                },
            },
            label="loop, collected by",
        )
    ],
    is_alone=True,
)
