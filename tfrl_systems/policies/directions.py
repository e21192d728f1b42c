"""Directions in which an evolution strategy looks: noise on a policy's variables, and its returns.

The noise of a direction is drawn from three numbers: the run's seed, the iteration and the
direction's number. Whoever has these can draw it again, so only they and the returns travel
(T. Salimans et al.: Evolution Strategies as a Scalable Alternative to Reinforcement Learning, 2017,
Algorithm 2).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfrl_systems.policies.variables import Layout

# Sets the noise apart from what else is drawn from the same numbers.
_NOISE = 0x4E01
SIGNS = (1.0, -1.0)
"""Both ends of a direction are tried."""


@dataclasses.dataclass(frozen=True)
class Directions:
    """The returns of N directions.

    Attributes:
      seeds: int64 [N, 3], the numbers that the noise is drawn from.
      returns: float64 [N, 2], the mean return at each end (`SIGNS`); NaN where episodes failed.
      num_steps: number of steps in all.
      num_episodes: number of episodes in all.
      messages: why episodes failed.
      evaluations: how often the system's own function was evaluated, if it has one.
    """

    seeds: np.ndarray
    returns: np.ndarray
    num_steps: int
    num_episodes: int
    messages: tuple[str, ...] = ()
    evaluations: int = 0

    @classmethod
    def concatenate(cls, parts: Sequence[Directions]) -> Directions:
        """Join directions in their order."""
        return cls(
            np.concatenate([part.seeds for part in parts]),
            np.concatenate([part.returns for part in parts]),
            sum(part.num_steps for part in parts),
            sum(part.num_episodes for part in parts),
            tuple(message for part in parts for message in part.messages),
            sum(part.evaluations for part in parts),
        )

    @property
    def mean_return(self) -> float:
        """Return the mean over all ends that did not fail; NaN if all did."""
        done = self.returns[np.isfinite(self.returns)]
        return float(np.mean(done)) if len(done) else float("nan")

    def sha256(self) -> str:
        """Return a hash of the numbers."""
        digest = hashlib.sha256(np.ascontiguousarray(self.seeds, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.returns, "<f8").tobytes())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Perturbation:
    """Adds noise to those of a policy's variables that are trainable.

    Attributes:
      layout: layout of all variables.
      places: where the trainable variables are among them.
      std: standard deviation of the noise in the first iteration.
      fall: what the standard deviation is multiplied by from one iteration to the next.
    """

    layout: Layout
    places: tuple[int, ...]
    std: float
    fall: float = 1.0

    @classmethod
    def of(cls, variables: Iterable[Any], trainable: Iterable[Any], std: float) -> Perturbation:
        """Make a perturbation of TensorFlow variables."""
        sources = list(variables)
        chosen = {id(variable) for variable in trainable}
        places = tuple(place for place, variable in enumerate(sources) if id(variable) in chosen)
        return cls(Layout.of(sources), places, std)

    def falling_to(self, std: float, iterations: int) -> Perturbation:
        """Return a perturbation whose noise falls to `std` by equal factors."""
        return dataclasses.replace(self, fall=(std / self.std) ** (1 / max(iterations - 1, 1)))

    def noise(self, seeds: Sequence[int]) -> list[np.ndarray]:
        """Draw a direction: normally distributed numbers, float32, for each trainable variable."""
        generator = np.random.default_rng([*map(int, seeds), _NOISE])
        shapes = [self.layout.entries[place].shape for place in self.places]
        return [generator.standard_normal(shape, np.float32) for shape in shapes]

    def perturbed(self, data: bytes, seeds: Sequence[int], sign: float) -> bytes:
        """Return variables that are moved in a direction, packed like `data`."""
        version, values = self.layout.read(data)
        _, iteration, _ = seeds
        step = np.float32(sign * self.std * self.fall ** int(iteration))
        for place, noise in zip(self.places, self.noise(seeds), strict=True):
            values[place] = (values[place] + step * noise).astype(values[place].dtype)
        return self.layout.write([value.tobytes() for value in values], version)
