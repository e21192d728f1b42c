"""What the jobs of real training runs weigh: a worker's seconds, and bytes both ways."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from unittest import mock

from environments.errors import Failure
from tfrl_systems import experiments
from tfrl_systems.drivers import collect
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk, Job, OnResult, Result
from tfrl_systems.drivers.pipes.messages import pickled
from tfrl_systems.drivers.ray_pool.worker import Answer

# Small runs of each system's usual jobs.
RUNS: Mapping[str, Mapping[str, Any]] = {
    "inlining": {"agent": "ppo"},
    "tensor_graphs": {"agent": "ppo", "models": ["bert-mini"]},
    "learn_to_optimize": {"agent": "ppo", "function": "shifted_ackley"},
}


@dataclasses.dataclass
class Count:
    """What was seen of a run's jobs.

    Attributes:
      job_s: mean seconds of a job, for each call of `map`.
      result_bytes: bytes of each result, as another node would send it.
      unpack_s: seconds of processor time that the head takes to unpack it.
      data_bytes: bytes of each broadcast, pickled.
      jobs_of_map: number of jobs of each call of `map`.
    """

    job_s: list[float] = dataclasses.field(default_factory=list)
    result_bytes: list[int] = dataclasses.field(default_factory=list)
    unpack_s: list[float] = dataclasses.field(default_factory=list)
    data_bytes: list[int] = dataclasses.field(default_factory=list)
    jobs_of_map: list[int] = dataclasses.field(default_factory=list)


class CountingPool(InProcessPool[Job, Result]):
    """A pool in this process that counts, for all pools of a run together, in `count`."""

    count: ClassVar[Count] = Count()

    def broadcast(self, data: Any) -> None:
        """Count the bytes, and have the runner load them."""
        self.count.data_bytes.append(len(pickled(data)))
        super().broadcast(data)

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result] | None = None
    ) -> list[Result | Failure]:
        """Run the jobs; count those that collect."""
        listed = list(jobs)
        before = self.timings.workers[0]
        results = super().map(listed, on_result)
        done = self.timings.workers[0] - before
        if all(isinstance(job, Chunk) for job in listed):
            self.count.job_s.append(done.collecting_s / len(listed))
            for one in results:
                self._weigh(Answer(pickled(one)).compressed())
            self.count.jobs_of_map.append(len(listed))
        return results

    def _weigh(self, sent: Answer) -> None:
        began_s = time.process_time()
        _ = sent.value
        self.count.unpack_s.append(time.process_time() - began_s)
        self.count.result_bytes.append(len(sent.payload))


def weigh(system: str, iterations: int, seed: int, **problem: Any) -> dict[str, float]:
    """Run a few iterations of a system's training, and return what one of its jobs weighs.

    Args:
      system: name of the system.
      iterations: how many iterations are run.
      seed: seed of the run.
      **problem: further fields of the system's problem.

    Returns:
      Means `job_s`, `result_bytes` and `unpack_s`; the largest `jobs_of_map` and `data_bytes`.
    """
    CountingPool.count = count = Count()
    pools = {"inprocess": (__name__, "CountingPool")}
    settings = {"evaluate_every": iterations}
    with tempfile.TemporaryDirectory() as directory, mock.patch.dict(collect.POOLS, pools):
        experiments.train(
            system,
            workdir=pathlib.Path(directory) / "run",
            seed=seed,
            iterations=iterations,
            collect=collect.Collect(),
            reporter=experiments.Reporter(),
            settings=settings,
            **{**RUNS[system], **problem},
        )
    return {
        "job_s": statistics.fmean(count.job_s),
        "result_bytes": statistics.fmean(count.result_bytes),
        "unpack_s": statistics.fmean(count.unpack_s),
        "jobs_of_map": max(count.jobs_of_map),
        "data_bytes": max(count.data_bytes),
    }
