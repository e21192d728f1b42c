"""The functions and the training runs of the experiments of `thesis_tables.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

SAMPLERS = ("random", "latin_hypercube", "uncertainty", "heterogeneous")
WORKERS_OF_DISTRIBUTED = 2
EXPERIMENTS = ("samplers", "distributed", "quality")


@dataclasses.dataclass(frozen=True)
class Case:
    """A function with its coordinates.

    Attributes:
      function: name of the function, as `functions.make_objective` takes it.
      dimensions: n, the number of coordinates.
      free: k, the number of free parameters among them.
    """

    function: str
    dimensions: int = 2
    free: int = 1

    @property
    def slug(self) -> str:
        """Name of the case in file names."""
        name = self.function.partition(":")[0].rpartition(".")[2]
        return f"{name}-{self.dimensions}-{self.free}" if self.dimensions > 2 else name

    @property
    def title(self) -> str:
        """Name of the case in tables."""
        words = self.function.replace("_", " ")
        return f"{words}, n = {self.dimensions}, k = {self.free}" if self.dimensions > 2 else words

    @property
    def measure(self) -> str:
        """The thesis's measure: "msle" if values span several orders of magnitude, else "mse"."""
        return "msle" if self.function.endswith("rosenbrock") else "mse"


DISTRIBUTED = Case("rotated_rosenbrock")
# The functions of Tables 6.2 and 6.3, and one whose minimum moves with c.
SAMPLED = (Case("ackley"), Case("rosenbrock"), Case("shifted_ackley"))
QUALITY = (
    *SAMPLED[:2],
    Case("sphere"),
    SAMPLED[2],
    DISTRIBUTED,
    Case("rotated_rosenbrock", 10, 3),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
      experiment: name of the experiment, which decides how long the run is: one of `EXPERIMENTS`,
        or that of the runs that are only timed.
      agent: "ppo" or "reinforce".
      case: the function to minimise.
      sampler: how start points are drawn.
      seed: seed of everything random.
      workers: number of processes that collect; 0 to collect in the process that learns.
    """

    experiment: str
    agent: str
    case: Case
    sampler: str
    seed: int
    workers: int = 0

    @property
    def name(self) -> str:
        """Name of the run's directory."""
        parts = [self.experiment, self.agent, self.case.slug, self.sampler, f"seed-{self.seed}"]
        return "-".join(parts + ([f"{self.workers}-workers"] if self.workers else []))


def plan(agents: Sequence[str], seed: int) -> list[Run]:
    """Return the training runs of one seed.

    Args:
      agents: the agents to compare; the first one also tries the samplers and the worker processes.
      seed: seed of the runs.
    """
    first, usual = agents[0], SAMPLERS[0]
    return [
        *(Run("samplers", first, case, sampler, seed) for case in SAMPLED for sampler in SAMPLERS),
        *(
            Run("distributed", first, DISTRIBUTED, usual, seed, workers)
            for workers in (0, WORKERS_OF_DISTRIBUTED)
        ),
        *(Run("quality", agent, case, usual, seed) for agent in agents for case in QUALITY),
    ]
