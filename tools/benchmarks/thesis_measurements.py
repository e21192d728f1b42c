"""The measurements of `thesis_tables.py`: training runs, and the time that collecting takes."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect, make_pool
from tfrl_systems.experiments import TrainingRun, find_system
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.training.loop import OnlineLoop
from tfrl_systems.training.online import make_agent
from tools.benchmarks.shared import Record, identity_of, kept
from tools.benchmarks.thesis_cases import Case, Run

_SYSTEM = "learn_to_optimize"
TIMING = "timing"
"""Experiment whose runs are only timed."""
# 64 episodes an iteration, as in the thesis, in enough chunks for 8 processes.
_TIMED = {"num_chunks": 8, "episodes_per_chunk": 8}
# First iterations, which are not timed, because TensorFlow traces its functions in them.
_WARM_UP = 10


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What is the same for all measurements.

    Attributes:
      output: directory of all records and tables.
      settings: settings of all runs, by name, as for `experiments.train`.
      iterations: number of iterations of the runs, by name of the experiment; experiments that are
        not named have the default of `tfrl train`.
    """

    output: pathlib.Path
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    iterations: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def arguments(self, run: Run) -> dict[str, Any]:
        """Return the arguments of `experiments.plan` and `experiments.train` for a run."""
        settings = {"judge": "truth", **self.settings}
        if run.experiment in self.iterations:
            settings["iterations"] = self.iterations[run.experiment]
        if run.experiment == TIMING:
            settings |= _TIMED
        return {
            "agent": run.agent,
            "seed": run.seed,
            "settings": settings,
            **dataclasses.asdict(run.case),
            "sampler": run.sampler,
        }

    def plan(self, run: Run) -> TrainingRun:
        """Return the training run that a run stands for."""
        return experiments.plan(_SYSTEM, **self.arguments(run))


def train(benchmark: Benchmark, run: Run) -> Record:
    """Return the record of a training run; train only if the directory holds no finished run.

    Raises:
      UserError: the run in the directory has other settings.
    """
    result = experiments.train(
        _SYSTEM,
        workdir=benchmark.output / "runs" / run.name,
        collect=_collect_of(run.workers),
        resume=True,
        reporter=Reporter(),
        **benchmark.arguments(run),
    ).result
    described = dataclasses.asdict(run)
    wanted = ("iterations", "environment_steps", "seconds", "experience_sha256", "policy_sha256")
    return {
        **described.pop("case"),
        **described,
        **{name: result[name] for name in wanted},
        "curve": result["evaluation"]["iterations"],
    }


def _collect_of(workers: int) -> Collect:
    """Return so many worker processes, or this process for 0."""
    return Collect("pipes", workers) if workers else Collect()


def time_collection(
    benchmark: Benchmark, agent: str, function: str, workers: int, iterations: int
) -> Record:
    """Return the record of one row of Table 6.1; measure it if no record is kept.

    Args:
      benchmark: directory and settings.
      agent: name of the agent.
      function: name of a function, which has two coordinates, one of them free.
      workers: number of processes that collect; 0 to collect in the process that learns.
      iterations: number of iterations to time.
    """
    run = Run(TIMING, agent, Case(function), "random", 0, workers)
    planned = benchmark.plan(run)
    path = benchmark.output / "timings" / f"{run.case.slug}-{workers}-workers.json"
    settings = {**identity_of(planned), "timed_iterations": iterations}
    return kept(path, settings, lambda: _time_collection(planned, workers, iterations))


def _time_collection(run: TrainingRun, workers: int, iterations: int) -> Record:
    collect, config = _collect_of(workers), run.settings["loop"]
    with find_system(_SYSTEM).online_task(run, collect, Reporter()) as task:
        agent = make_agent(run, task)
        make_runner = task.make_runner(NumpyActor.from_policy(agent.collect_policy))
        with make_pool(collect, make_runner) as pool:
            loop = OnlineLoop(agent, lambda _, one: agent.train(one.trajectory), pool, config)
            for _ in range(_WARM_UP):
                loop.step()
            records = [loop.step()["seconds"] for _ in range(iterations)]
    return {
        "function": run.problem.function,
        "workers": workers,
        "timed_iterations": iterations,
        "seconds": {name: sum(one[name] for one in records) for name in records[0]},
    }
