"""What plays episodes of learn_to_optimize in a worker."""

from __future__ import annotations

from environments.learn_to_optimize.levels import Levels
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.learn_to_optimize.problem import Problem


def make_runner(
    problem: Problem,
    settings: Settings,
    num_episodes: int,
    actor: NumpyActor,
    levels: Levels | None = None,
) -> EpisodeRunner:
    """Make a worker's runner; it measures the function's levels if they are not given."""
    environments = problem.make_environments(settings, actor, num_episodes, levels)
    return EpisodeRunner(environments, actor, num_episodes)
