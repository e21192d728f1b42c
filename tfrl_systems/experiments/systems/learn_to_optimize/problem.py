"""The options of learn_to_optimize: a function to minimise, and how start points are drawn."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from environments.learn_to_optimize.functions import Objective, make_objective
from environments.learn_to_optimize.samplers import NAMES as SAMPLERS
from environments.learn_to_optimize.samplers import make_samplers
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.experiments.settings import option

if TYPE_CHECKING:
    from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
    from tfrl_systems.policies.numpy_actor import NumpyActor

# Return the same object each time, because an objective remembers what is known of its minima.
_make_objective = functools.lru_cache(maxsize=8)(make_objective)


def low_high(text: str) -> tuple[float, float]:
    """Read two numbers, as in -5,5."""
    low, high = map(float, text.split(","))
    return low, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function:
    """A function to minimise for any values of its free parameters.

    Attributes:
      function: function to minimise: ackley, rosenbrock or sphere, one of these with shifted_ or
        rotated_ before its name, or your own as module:callable, which is called with points [N, n]
        and returns values [N]; where policies are compared, by default the function that the first
        one learned on.
      dimensions: number of coordinates of the function.
      free: number of free parameters, which are given and not chosen; they are the last
        coordinates.
      bounds: domain of your own function in each coordinate; by default the function's attribute
        bounds, or -1,1 without one.
    """

    function: str | None = option(None, metavar="NAME|MODULE:CALLABLE")
    dimensions: int = option(2, metavar="N", minimum=1)
    free: int = option(1, metavar="K", minimum=0)
    bounds: tuple[float, float] | None = option(
        None, metavar="LOW,HIGH", parse=low_high, expected="two numbers, as in -5,5"
    )

    @property
    def objective(self) -> Objective:
        """The function as an `Objective`.

        Raises:
          UserError: there is no function of that name, or it cannot be used.
        """
        assert self.function is not None
        return _make_objective(self.function, self.dimensions, self.free, self.bounds)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the function, as JSON values."""
        names = [one.name for one in dataclasses.fields(Function)]
        described = {name: getattr(self, name) for name in names}
        return {**described, "bounds": list(self.bounds) if self.bounds else None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Function):
    """What to learn on; it is sent to the workers.

    Attributes:
      sampler: how start points are drawn; uncertainty draws them where the policy is unsure, for
        which state_dependent_std is set; heterogeneous takes the other three in turn.
    """

    function: str = option(metavar="NAME|MODULE:CALLABLE")
    sampler: str = option("random", choices=SAMPLERS)

    @property
    def asks_the_policy(self) -> bool:
        """Whether start points depend on where the policy is unsure."""
        return self.sampler in ("uncertainty", "heterogeneous")

    def make_environments(
        self, settings: Settings, actor: NumpyActor | None = None, batch_size: int | None = None
    ) -> list[LearnToOptimizeEnvironment]:
        """Make one environment for each sampler.

        Args:
          settings: settings of the environments.
          actor: the actor whose entropy guides uncertainty sampling; None if there is none.
          batch_size: number of episodes side by side; None for environments that are not batched.
        """
        from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment

        samplers = make_samplers(
            self.sampler,
            self.dimensions,
            num_strata=settings.num_strata,
            num_candidates=settings.num_candidates,
            entropy_fn=None if actor is None else actor.entropy,
        )
        return [
            LearnToOptimizeEnvironment(
                self.objective, settings=settings, sampler=sampler, batch_size=batch_size
            )
            for sampler in samplers
        ]
