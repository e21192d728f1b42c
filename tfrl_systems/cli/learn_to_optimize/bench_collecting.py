"""Ways to collect the same episodes: ours and those of others, for `tfrl bench learn_to_optimize`.

Each is a context manager that makes a function, and each call of that collects once: 64 episodes of
2 steps of Ackley in two dimensions, with an actor of two hidden layers of 64 units.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from tf_agents.drivers import dynamic_episode_driver
from tf_agents.environments import parallel_py_environment, py_environment, tf_py_environment
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.system import system_multiprocessing
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from tfrl_systems.agents import ppo
from tfrl_systems.cli.learn_to_optimize.problem import MakeRunner, Problem
from tfrl_systems.drivers.episode_driver import EpisodeRunner
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk, JobFailure, Pool
from tfrl_systems.drivers.pool import DriverPool
from tfrl_systems.episodes import Experience
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.policies.tf_actor import TFActor

NUM_EPISODES = 64
SLEEP_S = 1e-3
# Of an environment that sleeps: as many chunks for each of 2, 4 or 8 workers.
_SLEEPING_CHUNKS = 40

# As large as the networks of Stable-Baselines3; with a normaliser, more is broadcast.
_CONFIG = ppo.Config(
    hidden_sizes=(64, 64), num_epochs=10, normalize_observations=True, state_dependent_std=True
)

Collect = Callable[[], object]


class Setup:
    """What is collected, and the policy that it is collected with.

    Attributes:
      problem: function and environment.
      agent: PPO, untrained.
      packer: reads and writes all variables of its collect policy.
      actor: the collect policy in NumPy, still without variables.
    """

    def __init__(self) -> None:
        self.problem = Problem("ackley", dimensions=2, free=1)
        environment = make_environment(self.problem)
        specs = environment.time_step_spec(), environment.action_spec()
        self.agent = ppo.make_agent(_CONFIG, *specs)
        self.packer = variables.Packer(self.agent.collect_policy.variables())
        self.actor = NumpyActor.from_policy(self.agent.collect_policy)


def make_environment(problem: Problem) -> LearnToOptimizeEnvironment:
    """One that is not batched."""
    return problem.make_environments()[0]


@contextlib.contextmanager
def ours(setup: Setup) -> Iterator[Callable[[], Experience]]:
    """The fastest here: the NumPy actor and one batched environment, as one chunk."""
    make_runner = MakeRunner(setup.problem, setup.actor, NUM_EPISODES)
    with _in_process(setup, make_runner) as collect:
        yield collect


def collect_once(setup: Setup) -> Experience:
    """What `ours` collects first."""
    with ours(setup) as collect:
        return collect()


@contextlib.contextmanager
def tf_actor(setup: Setup) -> Iterator[Collect]:
    """The same with TensorFlow computing the policy."""

    def make_runner() -> EpisodeRunner:
        environments = setup.problem.make_environments(batch_size=NUM_EPISODES)
        actor = TFActor(lambda: setup.agent.collect_policy, NUM_EPISODES)
        return EpisodeRunner(environments, actor, NUM_EPISODES)

    with _in_process(setup, make_runner) as collect:
        yield collect


@contextlib.contextmanager
def _in_process(
    setup: Setup, make_runner: Callable[[], EpisodeRunner]
) -> Iterator[Callable[[], Experience]]:
    with InProcessPool(make_runner, stop_on_failure=True) as pool:
        pool.broadcast(setup.packer.to_bytes())
        numbers = itertools.count()
        yield lambda: collect_chunks(pool, next(numbers), 1)


@contextlib.contextmanager
def pipes(setup: Setup, num_workers: int) -> Iterator[Collect]:
    """All of an iteration's collection, also that the variables are read, sent and loaded."""
    make_runner = MakeRunner(setup.problem, setup.actor, NUM_EPISODES // num_workers)
    with DriverPool(make_runner, num_workers, stop_on_failure=True, num_spares=0) as pool:
        numbers = itertools.count()

        def collect() -> Experience:
            number = next(numbers)
            pool.broadcast(setup.packer.to_bytes(number))
            return collect_chunks(pool, number, num_workers)

        yield collect


class SleepingEnvironment(LearnToOptimizeEnvironment):
    """Waits in every step, as environments do that ask another program.

    With a function that is cheap beside the wait: what workers do meanwhile is little.
    """

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        time.sleep(SLEEP_S)
        return super()._step(action)


def _make_sleeping_runner(actor: NumpyActor) -> EpisodeRunner:
    return EpisodeRunner([SleepingEnvironment("sphere")], actor, NUM_EPISODES)


@contextlib.contextmanager
def sleeping(setup: Setup, num_workers: int) -> Iterator[Collect]:
    """Episodes one after another, in this process (0 workers) or in so many others."""
    make_runner = functools.partial(_make_sleeping_runner, setup.actor)
    pool: Pool[Chunk, Experience]
    if num_workers:
        pool = DriverPool(make_runner, num_workers, stop_on_failure=True, num_spares=0)
    else:
        pool = InProcessPool(make_runner, stop_on_failure=True)
    with pool:
        pool.broadcast(setup.packer.to_bytes())
        yield lambda: collect_chunks(pool, 0, _SLEEPING_CHUNKS)


def collect_chunks(pool: Pool[Chunk, Experience], iteration: int, num_chunks: int) -> Experience:
    """The experience of an iteration."""
    found = pool.map([Chunk(iteration, index) for index in range(num_chunks)])
    return Experience.concatenate([one for one in found if not isinstance(one, JobFailure)])


@contextlib.contextmanager
def eager_driver(setup: Setup) -> Iterator[Collect]:
    """TF-Agents' driver as its tutorials call it."""
    yield _driver(setup, make_environment(setup.problem)).run


@contextlib.contextmanager
def tf_function_driver(setup: Setup) -> Iterator[Collect]:
    """The same as one graph function."""
    yield common.function(_driver(setup, make_environment(setup.problem)).run)


@contextlib.contextmanager
def parallel_environment(setup: Setup) -> Iterator[Collect]:
    """The same with environments in two processes."""
    with contextlib.suppress(ValueError):  # once for the whole process
        system_multiprocessing.enable_interactive_mode()
    make = functools.partial(make_environment, setup.problem)
    # Its processes are forked. That is safe as long as they leave TensorFlow alone, as these do.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        environment = parallel_py_environment.ParallelPyEnvironment([make] * 2)
    try:
        yield common.function(_driver(setup, environment).run)
    finally:
        environment.close()


def _driver(
    setup: Setup, environment: py_environment.PyEnvironment
) -> dynamic_episode_driver.DynamicEpisodeDriver:
    tf_environment = tf_py_environment.TFPyEnvironment(environment)
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
        setup.agent.collect_data_spec, tf_environment.batch_size, max_length=NUM_EPISODES * 4
    )
    return dynamic_episode_driver.DynamicEpisodeDriver(
        tf_environment, setup.agent.collect_policy, [buffer.add_batch], num_episodes=NUM_EPISODES
    )


@contextlib.contextmanager
def stable_baselines3(setup: Setup) -> Iterator[Collect]:
    """Stable-Baselines3's PPO; its rollouts come with values and advantages.

    Raises:
      ModuleNotFoundError: it is not installed.
    """
    from tfrl_systems.cli.learn_to_optimize import bench_stable_baselines3

    yield bench_stable_baselines3.make_collect(setup.problem, NUM_EPISODES)
