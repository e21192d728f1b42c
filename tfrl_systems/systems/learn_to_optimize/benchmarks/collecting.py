"""Ways to collect the same episodes and to learn from them, for `tfrl bench learn_to_optimize`.

Each way is a context manager that gives a function. Each call of the function collects once: 64
episodes of 2 steps of Ackley in two dimensions, with an actor of two hidden layers of 64 units.
Those that learn collect 1,024 episodes with two layers of 32 units, and train for two epochs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import tree
from tf_agents.drivers import dynamic_episode_driver
from tf_agents.environments import parallel_py_environment, py_environment, tf_py_environment
from tf_agents.policies import tf_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.system import system_multiprocessing
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

import environments
from environments.errors import Failure
from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.agents import ppo
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk, Pool, PoolError
from tfrl_systems.episodes import Experience
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.learn_to_optimize.problem import Problem

NUM_EPISODES = 64
NUM_LEARNED = 1024
_SLEEP_S = 1e-3
# Chunks of the environment that sleeps; divisible by 2, 4 and 8, so all workers get as many.
_SLEEPING_CHUNKS = 40
_SUPERVISION = Supervision(max_attempts=1)

SETTINGS = Settings(reward="auto", reference="mean")
# The networks are as large as those of Stable-Baselines3. The normaliser's variables are broadcast
# too.
_CONFIG = ppo.Config(
    hidden_sizes=(64, 64),
    num_epochs=10,
    gamma=0.0,
    relative_advantages=True,
    normalize_observations=True,
    state_dependent_std=True,
)
_LEARNING_CONFIG = ppo.Config(
    hidden_sizes=(32, 32),
    num_epochs=2,
    gamma=0.0,
    gradient_clipping=0.0,
    relative_advantages=True,
    normalize_rewards=False,
)

CollectFn = Callable[[], object]


class Setup:
    """What all ways share: the function to collect on, and PPO, untrained, to collect with.

    The packer reads and writes all variables of its collect policy. The actor is that policy in
    NumPy, still without variables. The reporter receives the names of what is left out.
    """

    def __init__(self, reporter: Reporter, config: ppo.Config = _CONFIG) -> None:
        self.reporter = reporter
        self.problem = Problem(function="ackley")
        environment = _make_environment(self.problem)
        specs = environment.time_step_spec(), environment.action_spec()
        self.agent = ppo.make_agent(config, *specs)
        self.packer = variables.Packer(self.agent.collect_policy.variables())
        self.actor = NumpyActor.from_policy(self.agent.collect_policy)


def _make_environment(problem: Problem) -> LearnToOptimizeEnvironment:
    return problem.make_environments(SETTINGS)[0]


def _batched(setup: Setup, num_episodes: int) -> Callable[[], EpisodeRunner]:
    return functools.partial(setup.problem.make_runner, SETTINGS, num_episodes, setup.actor)


def ours(setup: Setup) -> contextlib.AbstractContextManager[Callable[[], Experience]]:
    """Collect our fastest way: the NumPy actor and one batched environment, as one chunk."""
    return _in_process(setup, _batched(setup, NUM_EPISODES))


class _TensorFlowActor:
    """An `episode_runner.Actor` that draws its actions with TensorFlow.

    `load` does nothing, because the TensorFlow policy has the variables already.
    """

    def __init__(self, policy: tf_policy.TFPolicy) -> None:
        self._act = common.function(policy.action)

    def load(self, data: bytes) -> int:
        return 0

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        return tree.map_structure(np.asarray, self._act(time_step))


def tf_actor(setup: Setup) -> contextlib.AbstractContextManager[CollectFn]:
    """Collect as `ours` does, but with TensorFlow computing the policy."""

    def make_tf_runner() -> EpisodeRunner:
        environments = setup.problem.make_environments(SETTINGS, batch_size=NUM_EPISODES)
        actor = _TensorFlowActor(setup.agent.collect_policy)
        return EpisodeRunner(environments, actor, NUM_EPISODES)

    return _in_process(setup, make_tf_runner)


@contextlib.contextmanager
def _in_process(
    setup: Setup, make_runner_fn: Callable[[], EpisodeRunner]
) -> Iterator[Callable[[], Experience]]:
    with make_pool(Collect(), make_runner_fn, _SUPERVISION) as pool:
        pool.broadcast(setup.packer.to_bytes())
        numbers = itertools.count()
        yield lambda: _collect_once(pool, next(numbers), 1)


@contextlib.contextmanager
def pipes(setup: Setup, num_workers: int) -> Iterator[CollectFn]:
    """Collect with workers, and time reading, sending and loading the variables too."""
    batched = _batched(setup, NUM_EPISODES // num_workers)
    with make_pool(Collect("pipes", num_workers), batched, _SUPERVISION) as pool:
        numbers = itertools.count()

        def collect() -> Experience:
            number = next(numbers)
            pool.broadcast(setup.packer.to_bytes(number))
            return _collect_once(pool, number, num_workers)

        yield collect


class SleepingEnvironment(LearnToOptimizeEnvironment):
    """An environment that waits in every step, like one that asks another program.

    Its function should be cheap beside the wait, so that workers have little else to do.
    """

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        time.sleep(_SLEEP_S)
        return super()._step(action)


def _make_sleeping_runner(actor: NumpyActor) -> EpisodeRunner:
    return EpisodeRunner([SleepingEnvironment("sphere")], actor, NUM_EPISODES)


@contextlib.contextmanager
def sleeping(setup: Setup, collect: Collect) -> Iterator[CollectFn]:
    """Play episodes that sleep one after another, in as many workers as `collect` says."""
    make_sleeping = functools.partial(_make_sleeping_runner, setup.actor)
    with make_pool(collect, make_sleeping, _SUPERVISION) as pool:
        pool.broadcast(setup.packer.to_bytes())
        yield lambda: _collect_once(pool, 0, _SLEEPING_CHUNKS)


def _collect_once(pool: Pool[Chunk, Experience], iteration: int, num_chunks: int) -> Experience:
    """Collect the chunks of an iteration, and join them."""
    collected = []
    for outcome in pool.map([Chunk(iteration, index) for index in range(num_chunks)]):
        if isinstance(outcome, Failure):  # the time would be of less work
            raise PoolError(outcome.message)
        collected.append(outcome)
    return Experience.concatenate(collected)


@contextlib.contextmanager
def batched_environment(setup: Setup) -> Iterator[Callable[[], None]]:
    """Play the episodes in the batched environment, with actions that were drawn before."""
    settings = dataclasses.asdict(SETTINGS)
    batched = environments.make("learn_to_optimize", batch_size=NUM_EPISODES, **settings)
    actions = _actions(batched.action_spec().shape)

    def play() -> None:
        batched.reset()
        for action in actions:
            batched.step(action)

    yield play


@contextlib.contextmanager
def gymnasium_vector(setup: Setup) -> Iterator[Callable[[], None]]:
    """Play the same episodes through Gymnasium's vector interface.

    Raises:
      ModuleNotFoundError: Gymnasium is not installed.
    """
    import gymnasium

    name = "environments.gymnasium:tfrl/LearnToOptimize-v0"
    settings = dataclasses.asdict(SETTINGS)
    vector = gymnasium.make_vec(name, num_envs=NUM_EPISODES, **settings)
    actions = _actions(vector.single_action_space.shape or ())

    def play() -> None:
        vector.reset()
        for action in actions:
            vector.step(action)

    yield play
    vector.close()


def _actions(shape: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    size = (SETTINGS.episode_length, NUM_EPISODES, *shape)
    return list(generator.uniform(-1, 1, size).astype(np.float32))


@contextlib.contextmanager
def driver(setup: Setup, is_traced: bool) -> Iterator[CollectFn]:
    """Collect with TF-Agents' driver: eagerly as in its tutorials, or in a `tf.function`."""
    run = _driver(setup, _make_environment(setup.problem)).run
    yield common.function(run) if is_traced else run


@contextlib.contextmanager
def parallel_environment(setup: Setup) -> Iterator[CollectFn]:
    """Collect with TF-Agents' driver in a `tf.function`, with environments in two processes."""
    with contextlib.suppress(ValueError):  # raised if it was enabled before in this process
        system_multiprocessing.enable_interactive_mode()
    make = functools.partial(_make_environment, setup.problem)
    # TF-Agents forks these processes. That is safe because they do not use TensorFlow.
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
def stable_baselines3(
    setup: Setup,
    num_episodes: int = NUM_EPISODES,
    hidden_size: int = 64,
    num_epochs: int = 0,
    is_vectorised: bool = False,
) -> Iterator[CollectFn]:
    """Collect with Stable-Baselines3's PPO, whose rollouts include values and advantages.

    It learns, too, if there are epochs; see `stable_baselines3.make_learn`.

    Raises:
      ModuleNotFoundError: Stable-Baselines3 is not installed.
    """
    from tfrl_systems.systems.learn_to_optimize.benchmarks import stable_baselines3

    objective, length = setup.problem.make_objective(), SETTINGS.episode_length
    yield stable_baselines3.make_learn(
        objective, length, num_episodes, hidden_size, num_epochs, is_vectorised
    )


@contextlib.contextmanager
def learn(setup: Setup) -> Iterator[Callable[[], None]]:
    """Read the variables into the NumPy actor, collect as one chunk, and train."""
    learner = Setup(setup.reporter, _LEARNING_CONFIG)
    with make_pool(Collect(), _batched(learner, NUM_LEARNED), _SUPERVISION) as pool:
        numbers = itertools.count()

        def iterate() -> None:
            number = next(numbers)
            pool.broadcast(learner.packer.to_bytes(number))
            learner.agent.train(_collect_once(pool, number, 1).trajectory)

        yield iterate
