"""The options of learn_to_optimize: a function to minimise, and how start points are drawn."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from environments.errors import UsageError, UserError
from environments.learn_to_optimize.functions import Objective
from environments.learn_to_optimize.isolated import isolated_objective
from environments.learn_to_optimize.levels import Levels, measure_levels
from environments.learn_to_optimize.samplers import NAMES as SAMPLERS
from environments.learn_to_optimize.samplers import make_samplers
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.policies.trials import Trials
from tfrl_systems.settings import option
from tfrl_systems.systems.learn_to_optimize import trial_log

if TYPE_CHECKING:
    from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
    from tfrl_systems.drivers.episode_runner import EpisodeRunner
    from tfrl_systems.policies.numpy_actor import NumpyActor


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
        bounds, or -1,1 without one. In Python also one pair for each coordinate.
    """

    function: str | None = option(None, metavar="NAME|MODULE:CALLABLE")
    dimensions: int = option(2, metavar="N", minimum=1)
    free: int = option(1, metavar="K", minimum=0)
    bounds: Any = option(
        None, metavar="LOW,HIGH", parse=low_high, expected="two numbers, as in -5,5"
    )

    def __post_init__(self) -> None:
        """Take a function of Python by its name.

        Raises:
          UserError: it has none by which others could find it.
        """
        if self.function is not None and not isinstance(self.function, str):
            object.__setattr__(self, "function", _name_of(self.function))

    def make_objective(self) -> Objective:
        """Return the function as an `Objective`, read anew; the user's own in its own process.

        Raises:
          UserError: there is no function of that name, or it cannot be used.
        """
        assert self.function is not None
        return isolated_objective(self.function, self.dimensions, self.free, self.bounds)


def describe(objective: Objective) -> dict[str, Any]:
    """Return what identifies a function, as JSON values."""
    domain = {"low": objective.low.tolist(), "high": objective.high.tolist()}
    return {
        "function": objective.name,
        "dimensions": objective.dimensions,
        "free": objective.num_free,
        "bounds": domain if ":" in objective.name else None,
        "source_sha256": objective.source_sha256,
    }


def _name_of(function: Any) -> str:
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '<object>')}"
    if "<" in name:
        raise UserError(
            f"function: expected a function that has a name in its module, found {function!r}; "
            "define it by def at the top of a module, script or notebook"
        )
    return name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Function):
    """What to learn on; it is sent to the workers.

    Attributes:
      sampler: how start points are drawn; uncertainty draws them where the policy is unsure, for
        which state_dependent_std is set; heterogeneous takes the other three in turn, from chunk to
        chunk. To compare samplers, set state_dependent_std for all.
      log: a CSV file of trials that were made before, for the agent surrogate: columns x0, x1, …,
        c0, …, value, in the function's own units; an empty value says that the trial failed.
        Without function, it is learned from alone.
    """

    sampler: str = option("random", choices=SAMPLERS)
    log: pathlib.Path | None = option(None, metavar="TRIALS.csv")

    def __post_init__(self) -> None:
        """Check that there is something to learn on.

        Raises:
          UsageError: there is neither a function nor a log.
        """
        super().__post_init__()
        if self.function is None and self.log is None:
            raise UsageError(
                "expected function, found none: --function NAME|MODULE:CALLABLE, or with --agent "
                "surrogate --log TRIALS.csv"
            )

    def resolved(self) -> Resolved:
        """Read the log and the function, which stay what they are for the whole run.

        Raises:
          UserError: there is no such function or log, or they do not fit each other.
        """
        if self.log is None:
            return Resolved(**vars(self), objective=self.make_objective())
        logged = trial_log.read(self.log)
        name, dimensions = str(self.log), logged.points.shape[1]
        fields = vars(self) | {"dimensions": dimensions, "free": logged.num_free}
        if self.function is None:
            low, high = logged.sides(name, self.bounds)
            unknown = _Unknown(name)
            objective = Objective(
                f"log:{self.log.stem}", dimensions, logged.num_free, unknown, low, high
            )
        else:
            objective = isolated_objective(self.function, dimensions, logged.num_free, self.bounds)
        trials = logged.scaled(name, objective.low, objective.high)
        return Resolved(**fields, objective=objective, trials=trials, log_sha256=logged.sha256)

    @property
    def asks_the_policy(self) -> bool:
        """Whether start points depend on where the policy is unsure."""
        return self.sampler in ("uncertainty", "heterogeneous")

    def make_environments(
        self,
        settings: Settings,
        actor: NumpyActor | None = None,
        batch_size: int | None = None,
        levels: Levels | None = None,
    ) -> list[LearnToOptimizeEnvironment]:
        """Make one environment for each sampler.

        The actor's entropy guides uncertainty sampling. Without a `batch_size`, the number of
        episodes side by side, environments are not batched. Levels are measured if not given.
        """
        from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment

        samplers = make_samplers(
            self.sampler,
            self.dimensions,
            num_strata=settings.num_strata,
            num_candidates=settings.num_candidates,
            entropy_fn=None if actor is None else actor.entropy,
        )
        objective = self.make_objective()
        levels = levels or measure_levels(objective, settings)
        return [
            LearnToOptimizeEnvironment(
                objective,
                settings=settings,
                sampler=sampler,
                batch_size=batch_size,
                levels=levels,
            )
            for sampler in samplers
        ]

    def make_runner(
        self,
        settings: Settings,
        num_episodes: int,
        actor: NumpyActor,
        levels: Levels | None = None,
    ) -> EpisodeRunner:
        """Make a worker's runner; it measures the function's levels if they are not given."""
        from tfrl_systems.drivers.episode_runner import EpisodeRunner

        environments = self.make_environments(settings, actor, num_episodes, levels)
        return EpisodeRunner(environments, actor, num_episodes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved(Problem):
    """A problem with its function, as a run found it when it began.

    Attributes:
      objective: the function.
      trials: the trials of the log, in the box; None without a log.
      log_sha256: digest of the log.
    """

    objective: Objective
    trials: Trials | None = None
    log_sha256: str | None = None

    def make_objective(self) -> Objective:
        """Return the function as it was found."""
        return self.objective

    def describe(self) -> dict[str, Any]:
        """Return what identifies the problem, as JSON values."""
        logged = {} if self.trials is None else {"log_sha256": self.log_sha256}
        return {**describe(self.objective), "sampler": self.sampler, **logged}


@dataclasses.dataclass(frozen=True)
class _Unknown:
    """A function of which there is only a log; it refuses to be evaluated."""

    log: str

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        raise UserError(
            f"{self.log}: expected a function to evaluate, found a log; give --function"
        )
