"""What `thesis_tables.py` measures: training runs, and the time that collecting takes."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl_systems.cli import online
from tfrl_systems.cli.learn_to_optimize import train as learning
from tfrl_systems.cli.learn_to_optimize.problem import MakeRunner
from tfrl_systems.cli.settings import parse_settings
from tfrl_systems.cli.train import settings_of_learning
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.training.checkpoints import open_workdir
from tfrl_systems.training.online import OnlineLoop
from tools.benchmarks.shared import Record, kept
from tools.benchmarks.thesis_cases import Case, Run

# 64 episodes an iteration, as in the thesis, and work for up to 8 processes.
_TIMED = {"num_chunks": 8, "episodes_per_chunk": 8}
# Iterations that are not timed: TensorFlow traces in them.
_WARM_UP = 10


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What is the same for all measurements.

    Attributes:
      output: directory.
      assignments: `field=value`, as for `tfrl train`.
      iterations: of the runs of each experiment; those of `tfrl train` where it is not named.
    """

    output: pathlib.Path
    assignments: Sequence[str] = ()
    iterations: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def training(self, run: Run, **loop: Any) -> learning.Training:
        """What `tfrl train` would train; `loop` are settings of the loop."""
        values = parse_settings(self.assignments, settings_of_learning(run.agent, run.sampler))
        if run.experiment in self.iterations:
            values["loop"]["iterations"] = self.iterations[run.experiment]
        options = argparse.Namespace(
            agent=run.agent,
            function=run.case.function,
            dimensions=run.case.dimensions,
            free=run.case.free,
            bounds=None,
            sampler=run.sampler,
            seed=run.seed,
        )
        values["loop"] |= loop
        return learning.Training.of(options, values)


def train(benchmark: Benchmark, run: Run) -> Record:
    """The record of one training run: of the one that is kept, or of a new one.

    Raises:
      UserError: the kept one was made with other settings.
    """
    training = benchmark.training(run)
    path = benchmark.output / "runs" / run.name
    with open_workdir(path, training.settings(), resume=True) as workdir:
        result = workdir.result()
        if result is None:
            result = learning.train(training, workdir, run.workers)
    described = dataclasses.asdict(run)
    wanted = ("iterations", "environment_steps", "seconds", "experience_sha256", "policy_sha256")
    return {
        **described.pop("case"),
        **described,
        **{name: result[name] for name in wanted},
        "curve": result["evaluation"]["iterations"],
    }


def time_collection(
    benchmark: Benchmark, agent: str, function: str, workers: int, iterations: int
) -> Record:
    """The record of one row of Table 6.1: the one that is kept, or a new one.

    Args:
      benchmark: where it is kept, and the settings.
      agent: what learns.
      function: of two coordinates, one of them free.
      workers: processes that collect; 0 to collect in the process that learns.
      iterations: how many are timed.
    """
    run = Run("timing", agent, Case(function), "random", 0, workers)
    training = benchmark.training(run, **_TIMED)
    path = benchmark.output / "timings" / f"{run.case.slug}-{workers}-workers.json"
    settings = {**training.settings(), "timed_iterations": iterations}
    return kept(path, settings, lambda: _time_collection(training, workers, iterations))


def _time_collection(training: learning.Training, workers: int, iterations: int) -> Record:
    agent = training.make_agent()
    actor = NumpyActor.from_policy(agent.collect_policy)
    make_runner = MakeRunner(training.problem, actor, training.config.episodes_per_chunk)
    with online.make_pool(make_runner, workers) as pool:
        loop = OnlineLoop(
            agent, lambda _, one: float(agent.train(one.trajectory).loss), pool, training.config
        )
        for _ in range(_WARM_UP):
            loop.step()
        records = [loop.step()["seconds"] for _ in range(iterations)]
    return {
        "function": training.problem.function,
        "workers": workers,
        "timed_iterations": iterations,
        "seconds": {name: sum(one[name] for one in records) for name in records[0]},
    }
