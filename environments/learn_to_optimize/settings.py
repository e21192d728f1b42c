"""Settings of the environment of learn_to_optimize."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of episodes: their length, rewards and samplers.

    Attributes:
      episode_length: steps of an episode. If the agent's gamma is 0, it only decides how
        experience is collected.
      reward: "difference" of the values; "log1p", the difference of their logarithms, for functions
        that span orders of magnitude; or "scaled", the difference divided by the function's spread.
        "auto" takes log1p for rosenbrock and its variants, scaled for all others.
      reference: what a new point is compared with: the function's "mean", or the "old" point, the
        thesis's. If the agent's gamma is 0, both teach the same, "old" with more noise.
      discount: the environment's discount, 0 to 1; agents multiply it by their own gamma.
      num_strata: intervals of each coordinate in the sampler latin_hypercube, the thesis's M; of a
        batch of episodes side by side the best number is the batch's, or a divisor.
      num_candidates: candidates for each point in the sampler uncertainty.
    """

    episode_length: int = 2
    reward: str = "difference"
    reference: str = "old"
    discount: float = 1.0
    num_strata: int = dataclasses.field(default=64, metadata={"minimum": 1})
    num_candidates: int = dataclasses.field(default=64, metadata={"minimum": 1})
