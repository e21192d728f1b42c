"""Networks in NumPy that remember nothing, beside `NumpyController`, which does.

Whoever plays episodes calls `begin` and `remember` on every network, and need not know which kind
it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl_systems.policies import distributions


class Memoryless:
    """A network whose action depends on the observation alone."""

    def parameters(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the parameters of each row's action distribution (see `distributions`)."""
        raise NotImplementedError

    def parameters_at_start(self, observation: Any) -> dict[str, np.ndarray]:
        """Return what `parameters` would at the start of an episode."""
        return self.parameters(observation)

    def draw(self, parameters: Mapping[str, np.ndarray], generator: np.random.Generator) -> Any:
        """Draw one action for each row."""
        return distributions.draw(parameters, generator)

    def new_episode(self) -> Memoryless:
        """Return the network to play another episode with: this one."""
        return self

    def begin(self, is_first: np.ndarray | None = None) -> None:
        """Do nothing where episodes begin, in rows bool [B]; None for all."""

    def remember(self, action: np.ndarray) -> None:
        """Do nothing after an action."""

    def first_step(self) -> Any:
        """Return the network of an episode's first step: this one."""
        return self
