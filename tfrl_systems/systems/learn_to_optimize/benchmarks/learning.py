"""An iteration of PPO, ours and that of Stable-Baselines3, for `tfrl bench learn_to_optimize`.

The task is the thesis's: Ackley in two dimensions, 1,024 episodes of two steps, two hidden layers
of 32 units, two epochs over all steps. Each way is a context manager as in `collecting`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator

from tfrl_systems.agents import ppo
from tfrl_systems.drivers.collect import Collect, make_pool
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.learn_to_optimize.benchmarks import collecting
from tfrl_systems.systems.learn_to_optimize.runners import make_runner

_NUM_EPISODES = 1024
_CONFIG = ppo.Config(
    hidden_sizes=(32, 32),
    num_epochs=2,
    gamma=0.0,
    gradient_clipping=0.0,
    relative_advantages=True,
    normalize_rewards=False,
)


@contextlib.contextmanager
def ours(setup: collecting.Setup) -> Iterator[Callable[[], None]]:
    """Read the variables into the NumPy actor, collect as one chunk, and train."""
    environment = collecting.make_environment(setup.problem)
    agent = ppo.make_agent(_CONFIG, environment.time_step_spec(), environment.action_spec())
    packer = variables.Packer(agent.collect_policy.variables())
    actor = NumpyActor.from_policy(agent.collect_policy)
    make = functools.partial(make_runner, setup.problem, collecting.SETTINGS, _NUM_EPISODES, actor)
    with make_pool(Collect(), make, collecting.SUPERVISION) as pool:
        numbers = itertools.count()

        def learn() -> None:
            number = next(numbers)
            pool.broadcast(packer.to_bytes(number))
            agent.train(collecting.collect_once(pool, number, 1).trajectory)

        yield learn


@contextlib.contextmanager
def stable_baselines3(
    setup: collecting.Setup, is_vectorised: bool
) -> Iterator[Callable[[], object]]:
    """Collect and train with Stable-Baselines3.

    Raises:
      ModuleNotFoundError: Stable-Baselines3 is not installed.
    """
    from tfrl_systems.systems.learn_to_optimize.benchmarks import stable_baselines3

    yield stable_baselines3.make_learn(
        setup.problem.make_objective(),
        collecting.SETTINGS.episode_length,
        _NUM_EPISODES,
        is_vectorised,
    )
