"""What the experiments of `thesis_tables.py` are made on, and which training runs they need."""

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
      function: its name, for `functions.make_objective`.
      dimensions: n.
      free: k.
    """

    function: str
    dimensions: int = 2
    free: int = 1

    @property
    def slug(self) -> str:
        """For names of files."""
        name = self.function.partition(":")[0].rpartition(".")[2]
        return f"{name}-{self.dimensions}-{self.free}" if self.dimensions > 2 else name

    @property
    def title(self) -> str:
        """For tables."""
        words = self.function.replace("_", " ")
        return f"{words}, n = {self.dimensions}, k = {self.free}" if self.dimensions > 2 else words

    @property
    def measure(self) -> str:
        """The thesis's: MSE, and MSLE for a function of several orders of magnitude."""
        return "msle" if self.function.endswith("rosenbrock") else "mse"


DISTRIBUTED = Case("rotated_rosenbrock")
# Tables 6.2 and 6.3, and one whose minimum moves with c.
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
      experiment: one of `EXPERIMENTS`, which says how long it is.
      agent: "ppo" or "reinforce".
      case: what it learns.
      sampler: of start points.
      seed: of everything.
      workers: processes that collect; 0 to collect in the process that learns.
    """

    experiment: str
    agent: str
    case: Case
    sampler: str
    seed: int
    workers: int = 0

    @property
    def name(self) -> str:
        """Of its directory."""
        parts = [self.experiment, self.agent, self.case.slug, self.sampler, f"seed-{self.seed}"]
        return "-".join(parts + ([f"{self.workers}-workers"] if self.workers else []))


def plan(agents: Sequence[str], seed: int) -> list[Run]:
    """The training runs of one seed.

    Args:
      agents: all are compared; the first of them tries the samplers and the processes.
      seed: of the runs.
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
