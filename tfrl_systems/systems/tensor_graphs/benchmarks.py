"""The benchmarks of tensor_graphs: what a step costs, and what learning and dreaming cost."""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil

from environments import contexts
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rewriting.match_index import MatchIndex, Starts
from environments.tensor_graphs.rewriting.matching import CompiledRule, Match, compile_rules
from environments.tensor_graphs.settings import Settings
from tfrl_systems.cpu_time import timed_ms
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs import learning
from tfrl_systems.systems.tensor_graphs.problem import (
    Benchmarks,
    GraphProblem,
    Problem,
    find_model,
    num_operators,
)
from tfrl_systems.training import online
from tfrl_systems.training.system import System

_WALK = 20
_NUM_GRAPHS = 32
NUM_DREAMS, DREAM_STEPS = 256, 20
# Updates that are timed; the first, which traces its function, is not.
_NUM_UPDATES = 3


def measure(system: System, request: Benchmarks, reporter: Reporter) -> dict[str, Any]:
    """Measure, and return what `tfrl bench tensor_graphs --json` prints."""
    benchmarks: list[dict[str, Any]] = []
    advance = reporter.task("measuring", 3 * len(request.models) + 1)
    for name in request.models:
        problem = GraphProblem.of(name, find_model(name, request.seed), request)
        for measure_part in (_engine, _environment, functools.partial(_learning, system)):
            benchmarks += measure_part(problem, request)
            advance(1)
    first = request.models[0]
    benchmarks.append(
        {
            "name": "dream_steps_per_second",
            "value": measure_dreaming(system, request, first),
            "unit": "steps/s",
            "of": f"{NUM_DREAMS} dreams of {first} side by side, {DREAM_STEPS} steps each",
        }
    )
    advance(1)
    return {"benchmarks": benchmarks}


def _engine(problem: GraphProblem, request: Benchmarks) -> list[dict[str, Any]]:
    """Time steps of random walks, and for each a search for all matches of the same graph anew."""
    compiled = compile_rules(problem.rules)
    starts = Starts(compiled)
    state = start = Engine(problem.rules, problem.objective).start(problem.graph)
    generator = random.Random(request.seed)
    steps_ms, full_ms = [], []
    for number in range(request.steps):
        if number % _WALK == 0 or not state.matches:
            state = start
        if not state.matches:
            break
        taken_ms, state = timed_ms(functools.partial(_step, state, generator.choice(state.matches)))
        steps_ms.append(taken_ms)
        taken_ms, _ = timed_ms(functools.partial(_search_anew, state.graph, compiled, starts))
        full_ms.append(taken_ms)
    of = (
        f"{num_operators(problem.graph)} operators, {len(problem.rules)} rules, "
        f"{len(problem.start.matches)} matches"
    )
    step = _in_ms(f"engine_step_ms_{problem.name}", steps_ms, of)
    ours_ms, theirs_ms = step["value"], _median(full_ms)
    return [
        step,
        {
            "name": f"incremental_over_full_match_{problem.name}",
            "ratio": theirs_ms / ours_ms if ours_ms else 1.0,
            "against": "all matches searched anew",
            "theirs_ms": theirs_ms,
            "ours_ms": ours_ms,
        },
    ]


def _step(state: State, match: Any) -> State:
    """Apply a match, and compute everything that an environment needs from the new state."""
    following = state.apply(match)
    following.matches, following.cost_ms, following.xfer_mask, following.num_matches  # noqa: B018
    return following


def _search_anew(graph: Graph, rules: tuple[CompiledRule, ...], starts: Starts) -> Sequence[Match]:
    return MatchIndex(graph, rules, starts).matches


def _environment(problem: GraphProblem, request: Benchmarks) -> list[dict[str, Any]]:
    """Time steps of random allowed actions, each with its observation; resets are not timed."""
    model = Model(problem.name, problem.graph)
    environment = TensorGraphEnvironment(
        contexts.sequential([model]), Settings(max_steps=_WALK), problem.rules, problem.objective
    )
    generator = np.random.default_rng(request.seed)
    steps_ms: list[float] = []
    early_mib = 0.0
    time_step = environment.reset()
    while len(steps_ms) < request.steps:
        if time_step.is_last():
            time_step = environment.reset()
        observation = time_step.observation
        # The first action is NO-OP, which is taken only if no other is allowed.
        num_actions = int(observation["action_mask"].sum())
        row = generator.integers(1, num_actions) if num_actions > 1 else 0
        step = functools.partial(environment.step, observation["actions"][row])
        taken_ms, time_step = timed_ms(step)
        steps_ms.append(taken_ms)
        # Caches fill up at first; only what grows later is a leak.
        if len(steps_ms) == max(1, request.steps // 10):
            early_mib = _memory_mib()
    return [
        _in_ms(f"environment_step_ms_{problem.name}", steps_ms, "random allowed actions"),
        {
            "name": f"memory_growth_mib_{problem.name}",
            "value": _memory_mib() - early_mib,
            "unit": "MiB",
            "of": f"the last nine tenths of {request.steps} steps of the environment",
        },
    ]


def _memory_mib() -> float:
    """Return the memory that this process has in use, in MiB."""
    return float(psutil.Process().memory_info().rss / 2**20)


def _learning(system: System, problem: GraphProblem, request: Benchmarks) -> list[dict[str, Any]]:
    name = problem.name
    policy_ms, again_ms, updates_ms = measure_learning(system, request, name)
    graphs = f"{len(policy_ms)} graphs"
    return [
        _in_ms(f"policy_ms_{name}", policy_ms, f"one of {graphs}, in NumPy"),
        _in_ms(f"policy_again_ms_{name}", again_ms, f"one of the same {graphs}, when all are met"),
        _in_ms(f"train_step_ms_{name}", updates_ms, f"PPO's update from {graphs}"),
    ]


def measure_learning(
    system: System, request: Benchmarks, model: str
) -> tuple[list[float], list[float], list[float]]:
    """Time the decisions of an untrained policy on a model, and PPO's updates from its graphs.

    Returns:
      CPU time in ms: of the policy's decision on each graph of one episode, of its decision on each
      when it has met all of them, and of each update from all of them.
    """
    agent, actor, experience = _collected(system, "ppo", request, model)
    seen = [
        {name: array[:, step] for name, array in experience.trajectory.observation.items()}
        for step in range(experience.num_steps)
    ]
    # The same actor has played the episode, and a local one remembers its graphs.
    actor.network.begin()
    policy_ms, again_ms = (
        [timed_ms(functools.partial(actor.network.parameters, graph))[0] for graph in seen]
        for _ in range(2)
    )
    update = functools.partial(agent.train, experience.with_usual_length().trajectory)
    update()
    return policy_ms, again_ms, [timed_ms(update)[0] for _ in range(_NUM_UPDATES)]


def measure_dreaming(system: System, request: Benchmarks, model: str) -> float:
    """Return a world model's steps in a second of wall time, the best of three.

    `NUM_DREAMS` dreams of a model go side by side, and an untrained controller acts in them.
    """
    agent, _, experience = _collected(system, "world_model", request, model)
    agent.replay.add(experience.trajectory)
    starts, generator = agent.sleeper.starts(agent.replay), np.random.default_rng(request.seed)
    dream = functools.partial(agent.sleeper.dream, starts, NUM_DREAMS, DREAM_STEPS, generator)
    dream()  # traces its function
    spent_s = []
    for _ in range(_NUM_UPDATES):
        began_s = time.perf_counter()
        dream()
        spent_s.append(time.perf_counter() - began_s)
    return NUM_DREAMS * DREAM_STEPS / min(spent_s)


def _collected(
    system: System, name: str, request: Benchmarks, model: str
) -> tuple[Any, NumpyActor, Experience]:
    """Return an untrained agent, its actor, and an episode of at most `_NUM_GRAPHS` steps."""
    # A request for benchmarks has fields of its own, which no plan takes.
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(Problem)}
    settings = {"max_steps": _NUM_GRAPHS, "episodes_per_chunk": 1}
    run = system.plan(name, request.seed, settings, {**fields, "models": (model,)})
    run = learning.with_room(run)
    task = learning.online_task(run)
    agent = online.make_agent(run, task)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = task.make_runner(actor)()
    data = variables.to_bytes(agent.collect_policy.variables(), 0)
    runner.load(data)
    actor.load(data)
    return agent, actor, runner.run(Chunk(0, 0))


def _median(taken_ms: Sequence[float]) -> float:
    """Return the median; 0 if no step could be taken."""
    return statistics.median(taken_ms) if taken_ms else 0.0


def _in_ms(name: str, taken_ms: Sequence[float], of: str) -> dict[str, Any]:
    """Return a benchmark as --json shows it; "slowest_ms" is the 95th percentile."""
    slowest_ms = sorted(taken_ms)[int(0.95 * (len(taken_ms) - 1))] if taken_ms else 0.0
    return {
        "name": name,
        "value": _median(taken_ms),
        "unit": "ms",
        "slowest_ms": slowest_ms,
        "of": of,
    }
