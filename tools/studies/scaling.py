"""How long training takes by the number of workers: Figures 5.4, 6.1, 6.2, Table 6.1 of the thesis.

P. Mayer's thesis (Stuttgart, 2023) divides the time of a training step into collecting,
broadcasting and training (Algorithm 4.1). So does a run: its `waiting` is the thesis's collecting.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from tfrl_systems.drivers.collect import Collect
from tfrl_systems.settings import option
from tfrl_systems.training.checkpoints import Workdir
from tools.studies import learning, sleeping
from tools.studies.study import Record, Records, Study, Table, Trial, median

# Title -> function, and whether it keeps a processor busy.
FUNCTIONS = {
    "Ackley": ("ackley", True),
    "Rosenbrock": ("rosenbrock", True),
    "sphere": ("sphere", True),
    **{
        f"{name.replace('_', ' ')} a point": (f"{sleeping.__name__}:{name}", "working" in name)
        for name in ("working_1_ms", "working_10_ms", "sleeping_1_ms", "sleeping_10_ms")
    },
}
# Table 4.1: 64 episodes of two steps, and the reward of eq. 3.2.
_NUM_EPISODES = 64
_SETTINGS = {"episode_length": 2, "reward": "difference", "reference": "old", "judged_points": 1}
_BATCHES = (1, 4, 16, 64, 256)
_BATCHED = ("Ackley", "working 1 ms a point")
# A run's time, and what the thesis calls it.
PARTS = {"waiting": "collecting", "broadcasting": "broadcasting", "training": "training"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """What is timed.

    Attributes:
      functions: a function to minimise; may be repeated.
      most_workers: 1, 2, 4, … workers, up to so many; always as many chunks as the most have.
        Functions that keep a processor busy get no more workers than there are processors.
      iterations: iterations that are timed, after as many that are not: TensorFlow compiles there.
      seeds: how many seeds: 0, 1, …
    """

    functions: tuple[str, ...] = option(
        tuple(FUNCTIONS), flag="--function", metavar="NAME", choices=tuple(FUNCTIONS)
    )
    most_workers: int = option(8, metavar="N", minimum=1)
    iterations: int = option(5, metavar="N", minimum=1)
    seeds: int = option(3, metavar="N", minimum=1)


def _trials(options: Scaling) -> Iterator[Trial]:
    num_chunks = 1 << options.most_workers.bit_length() - 1
    for title in options.functions:
        most = min(num_chunks, os.cpu_count() or 1) if FUNCTIONS[title][1] else num_chunks
        for workers in (1 << k for k in range(most.bit_length())):
            yield from _repeated(options, "workers", title, workers, num_chunks, _NUM_EPISODES)
        if title in _BATCHED:
            for episodes in _BATCHES:
                yield from _repeated(options, "episodes", title, 1, 1, episodes)


def _repeated(
    options: Scaling, by: str, title: str, workers: int, num_chunks: int, episodes: int
) -> Iterator[Trial]:
    """Yield the trials of all seeds; `by` says which of the numbers its table has in rows."""
    about = {
        **{"system": "learn_to_optimize", "agent": "reinforce", "title": title},
        **{"by": by, "workers": workers, "episodes": episodes},
        "iterations": 2 * options.iterations,
        "settings": {
            **_SETTINGS,
            "num_chunks": num_chunks,
            "episodes_per_chunk": max(episodes // num_chunks, 1),
            "evaluate_every": 2 * options.iterations,
            "checkpoint_every": options.iterations,
        },
    }
    for seed in range(options.seeds):
        name = f"{title}-{about[by]}-{by}-seed-{seed}"
        yield Trial(name.replace(" ", "-"), {**about, "seed": seed})


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Train, and return the milliseconds of an iteration's parts, and the policy's hash."""
    collect = Collect.with_workers(about["workers"])
    function, _ = FUNCTIONS[about["title"]]
    run = learning.train(about, workdir, function=function, collect=collect)
    half = about["iterations"] // 2
    checkpoint = Workdir(run.workdir).load(half)
    assert checkpoint is not None, "the last two checkpoints of a run are kept"
    before, after = checkpoint.record["seconds"], run.result["seconds"]
    spent_ms = {PARTS[name]: 1e3 * (after[name] - before[name]) / half for name in PARTS}
    return {**spent_ms, "policy": run.result["policy_sha256"][:8]}


def _timed(records: Records) -> Iterator[Record]:
    """Yield the runs of Table 6.1 with their multipliers ρ and ρ*."""
    by_workers = [record for record in records if record["by"] == "workers"]
    alone = {
        (record["title"], record["seed"]): record["collecting"]
        for record in by_workers
        if record["workers"] == 1
    }
    for record in by_workers:
        reference = alone[record["title"], record["seed"]]
        away = record["collecting"] + record["broadcasting"]
        faster = {"rho": reference / record["collecting"], "rho_star": reference / away}
        yield {**record, **faster}


def _batched(records: Records) -> list[Record]:
    return [record for record in records if record["by"] == "episodes"]


def _policies(records: Records) -> str:
    """Return the hashes of the policies of all seeds."""
    return " ".join(record["policy"] for record in records)


_TIMES: dict[str, Any] = {f"{name}, ms": median(name, "{:.1f}") for name in PARTS.values()}

SCALING = Study(
    """How long collecting, broadcasting and training take by the number of workers.

REINFORCE as in the thesis's Table 4.1: 64 episodes of two steps an iteration. Episodes come in as
many chunks for one worker as for many, so that all learn the same policy (thesis, 6.2); one worker
is this process, which plays one chunk after another. Functions of 1 and 10 ms a point work, for so
much processor time, or sleep: what sleeps fits on few cores.""",
    Scaling,
    _trials,
    measure,
    [
        Table(
            "Time of an iteration by workers: ρ = t(1)/t(k) of collecting, ρ* with broadcasting. "
            "Median (range) over seeds; policies of all seeds.",
            ("title", "workers"),
            {
                **_TIMES,
                "ρ": median("rho"),
                "ρ*": median("rho_star"),
                "policies": _policies,
            },
            derive=_timed,
            label="function, workers",
        ),
        Table(
            "Time of an iteration by episodes, in one chunk in this process (Figure 5.4).",
            ("title", "episodes"),
            _TIMES,
            derive=_batched,
            label="function, episodes",
        ),
    ],
)
