"""The benchmarks of learn_to_optimize: collecting and learning, beside other libraries."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl_systems.cpu_time import cpu_s
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.learn_to_optimize.benchmarks import collecting
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy

_NUM_CALLS = 300
_NUM_ROWS = 4096

Figures = dict[str, dict[str, Any]]
"""Benchmarks by name, as --json shows them."""

MakeCollect = Callable[[collecting.Setup], contextlib.AbstractContextManager[collecting.CollectFn]]


class Way(NamedTuple):
    """A way to collect: what makes its function, calls in a round, and a description."""

    make: MakeCollect
    repeats: int
    what: str


_COLLECTING = {
    "collect_ms": Way(collecting.ours, 300, "NumPy policy, batched environment, in this process"),
    "collect_over_eager_driver": Way(
        functools.partial(collecting.driver, is_traced=False),
        1,
        "TF-Agents DynamicEpisodeDriver, one environment, eager",
    ),
    "collect_over_tf_function_driver": Way(
        functools.partial(collecting.driver, is_traced=True), 10, "the same in a tf.function"
    ),
    "collect_over_parallel_py_environment": Way(
        collecting.parallel_environment,
        10,
        "the same with ParallelPyEnvironment, 2 processes",
    ),
    "collect_over_stable_baselines3": Way(
        collecting.stable_baselines3,
        30,
        "Stable-Baselines3 PPO.collect_rollouts, DummyVecEnv of 64",
    ),
    "numpy_actor_over_tf_actor": Way(
        collecting.tf_actor, 30, "ours with TensorFlow for the policy"
    ),
}
_LEARNING_OF_OTHERS = functools.partial(
    collecting.stable_baselines3,
    num_episodes=collecting.NUM_LEARNED,
    hidden_size=32,
    num_epochs=2,
)
_LEARNING = {
    "ppo_iteration_ms": Way(
        collecting.learn,
        100,
        "collect 1024 episodes of 2 steps, then 2 epochs of PPO, in this process",
    ),
    "ppo_iteration_over_stable_baselines3": Way(
        _LEARNING_OF_OTHERS,
        3,
        "Stable-Baselines3 PPO, DummyVecEnv of 1024",
    ),
    "ppo_iteration_over_stable_baselines3_vectorised": Way(
        functools.partial(_LEARNING_OF_OTHERS, is_vectorised=True),
        10,
        "the same, an environment of 1024 rows written by hand",
    ),
}
# In each, the first way is ours, and the others are compared with it.
_COMPARISONS = (_COLLECTING, _LEARNING)
_VECTORS = {
    "own": Way(collecting.batched_environment, 300, "the batched environment by itself"),
    "gymnasium": Way(collecting.gymnasium_vector, 300, "Gymnasium's vector interface"),
}
_PIPES = Way(
    functools.partial(collecting.pipes, num_workers=2),
    100,
    "read, send and load the variables, collect 2 chunks of 32, join them",
)
_SLEEPING = Way(
    functools.partial(collecting.sleeping, collect=Collect()),
    1,
    "the same episodes in this process",
)


def measure(names: Sequence[str], rounds: int, reporter: Reporter) -> dict[str, Any]:
    """Measure in turns, and return what `tfrl bench learn_to_optimize --json` prints."""
    # TensorFlow refuses to change its threads once it has been used; they then stay as they are.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    setup = collecting.Setup(reporter)
    benchmarks: Figures = {}
    advance = reporter.task("measuring", len(names))
    for comparison in _COMPARISONS:
        if compared := [name for name in names if name in comparison]:
            benchmarks |= _compare(compared, comparison, setup, rounds)
            advance(len(compared))
    for name in names:
        if name in _FIGURES:
            if figure := _FIGURES[name](setup, rounds):
                benchmarks[name] = figure
            advance(1)
    return {
        "benchmarks": [{"name": name, **benchmarks[name]} for name in names if name in benchmarks]
    }


def _compare(
    names: Sequence[str], comparison: Mapping[str, Way], setup: collecting.Setup, rounds: int
) -> Figures:
    """Measure our way and others, in turns."""
    own_name, own_way = next(iter(comparison.items()))
    ways = {name: way for name, way in comparison.items() if name in names}
    costs = _in_turns({own_name: own_way, **ways}, setup, rounds)
    ours = costs.pop(own_name)
    benchmarks = {name: _ratio(cost, ours, ways[name].what) for name, cost in costs.items()}
    if own_name in names:
        benchmarks[own_name] = {"value": ours[0], "unit": "ms", "of": own_way.what}
    return benchmarks


def _scale(setup: collecting.Setup, rounds: int, num_workers: int) -> dict[str, Any]:
    in_workers = functools.partial(collecting.sleeping, collect=Collect("pipes", num_workers))
    ways = {"one": _SLEEPING, "pipes": Way(in_workers, 1, "")}
    costs = _in_turns(ways, setup, rounds)
    return _ratio(costs["one"], costs["pipes"], _SLEEPING.what)


def _ratio(theirs: tuple[float, float], ours: tuple[float, float], against: str) -> dict[str, Any]:
    """Compare two medians of wall and CPU time, in ms."""
    return {
        "ratio": theirs[0] / ours[0],
        "against": against,
        "cpu_ratio": theirs[1] / ours[1],
        "theirs_ms": theirs[0],
        "ours_ms": ours[0],
    }


def _in_turns(
    ways: Mapping[str, Way], setup: collecting.Setup, rounds: int
) -> dict[str, tuple[float, float]]:
    """Measure each way, taking turns; report and leave out ways that are not installed.

    Returns:
      Medians of the wall time and of the CPU time, children's too, of one collect, in ms.
    """
    wall_ms: dict[str, list[float]] = {}
    cpu_ms: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        collects = {}
        for name, way in ways.items():
            try:
                collects[name] = stack.enter_context(way.make(setup))
            except ModuleNotFoundError as error:
                setup.reporter.say(
                    f"left out: {name}, without {error.name}; pip install 'tfrl-systems[bench]'"
                )
                continue
            collects[name]()  # warm up: what is made once is made now
            wall_ms[name], cpu_ms[name] = [], []
        for _ in range(rounds):
            for name, collect in collects.items():
                began_s = cpu_s()
                taken_s = _time_calls(collect, ways[name].repeats)
                cpu_ms[name].append(1e3 * (cpu_s() - began_s) / len(taken_s))
                wall_ms[name] += [1e3 * seconds for seconds in taken_s]
    return {
        name: (statistics.median(taken), statistics.median(cpu_ms[name]))
        for name, taken in wall_ms.items()
    }


def _time_calls(function: Callable[[], object], count: int) -> list[float]:
    """Return the wall time of each call, in seconds."""
    taken = []
    for _ in range(count):
        began_s = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began_s)
    return taken


def _pipes_collect(setup: collecting.Setup, rounds: int) -> dict[str, Any]:
    wall_ms, _ = _in_turns({"pipes": _PIPES}, setup, rounds)["pipes"]
    return {"value": wall_ms, "unit": "ms", "of": _PIPES.what}


def _vector(setup: collecting.Setup, rounds: int) -> dict[str, Any]:
    costs = _in_turns(_VECTORS, setup, rounds)
    if "gymnasium" not in costs:
        return {}
    return _ratio(costs["gymnasium"], costs["own"], _VECTORS["own"].what)


def _broadcast(setup: collecting.Setup, rounds: int) -> dict[str, Any]:
    def broadcast() -> None:
        setup.actor.load(setup.packer.to_bytes())

    num_floats = sum(math.prod(entry.shape) for entry in setup.packer.layout.entries)
    what = f"read {num_floats} floats from TensorFlow, load them into the NumPy actor"
    return {**_median(broadcast, rounds, 1e3, "ms"), "of": what}


def _query(setup: collecting.Setup, rounds: int, num_rows: int) -> dict[str, Any]:
    setup.actor.load(setup.packer.to_bytes())
    objective = setup.problem.make_objective()
    policy = OptimizerPolicy(setup.actor.network, objective.num_tuned)
    shape = (num_rows, objective.num_free)
    free = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    what = f"policy(c) -> x, {num_rows} at a time"
    return {**_median(lambda: policy(free), rounds, 1e6 / num_rows, "us"), "of": what}


def _train_step(setup: collecting.Setup, rounds: int) -> dict[str, Any]:
    with collecting.ours(setup) as collect:
        trajectory = collect().trajectory
    measured = _median(lambda: setup.agent.train(trajectory), rounds, 1e3, "ms")
    return {**measured, "of": "PPO's train on the 64 episodes, 10 epochs"}


def _median(
    function: Callable[[], object], rounds: int, units_per_s: float, unit: str
) -> dict[str, Any]:
    function()  # warm up: what is made once is made now
    taken = _time_calls(function, rounds * _NUM_CALLS)
    return {"value": units_per_s * statistics.median(taken), "unit": unit}


_FIGURES: Mapping[str, Callable[[collecting.Setup, int], dict[str, Any]]] = {
    "pipes_collect_ms_2_workers": _pipes_collect,
    **{
        f"pipes_scaling_sleep_1ms_{number}": functools.partial(_scale, num_workers=number)
        for number in (2, 4, 8)
    },
    "gymnasium_vector_over_batched": _vector,
    "broadcast_ms": _broadcast,
    "query_us": functools.partial(_query, num_rows=1),
    "query_us_per_row": functools.partial(_query, num_rows=_NUM_ROWS),
    "train_step_ms": _train_step,
}
