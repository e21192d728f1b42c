"""A model whose best rewriting begins with steps that gain nothing, and observations of any graph.

The model is Relu(Relu(x)). Made-up rules and costs:

    slip   Relu (2 ms)    => Abs (1.8 ms)       a gain at once, and the end
    lift   Relu (2 ms)    => Sigmoid (2 ms)     none
    drop   Sigmoid (2 ms) => Tanh (1 ms)        a greater one

Greedily both slip, and 0.4 ms of 4 are saved. In four steps, in some order, both are lifted and
dropped, and 2 ms are saved. That is all the steps that there are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from environments import contexts
from environments.graph_observation import GraphSpace
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.observation.features import MATCH_FEATURES
from environments.tensor_graphs.observation.observation import Observer
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.rules.language.notation import op, rule
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.settings import Settings
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor

SIZES = Settings(max_steps=4, max_nodes=12, max_edges=14, max_locations=6, max_actions=16)
GREEDY_RETURN, BEST_RETURN = 10.0, 50.0
"""0.4 and 2 of 4 ms, in percent."""


@rule
def slip(x):
    return op.Relu(x), op.Abs(x)


@rule
def lift(x):
    return op.Relu(x), op.Sigmoid(x)


@rule
def drop(x):
    return op.Sigmoid(x), op.Tanh(x)


RULES = (slip, lift, drop)


class Hill:
    """What the operators cost."""

    name = "hill"

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        return {INPUT: 0.0, "Tanh": 1.0, "Abs": 1.8}.get(graph.nodes[number].op, 2.0)


def relus(count: int = 2) -> Model:
    """Relu of Relu … of x."""
    edit = Graph().edit()
    last = edit.add(INPUT, [], (("name", "x"),), [TensorType("float32", (4,))])
    for _ in range(count):
        (last,) = add(edit, "Relu", last)
    edit.set_outputs([last], ["y"])
    return Model(f"relus-{count}", edit.finish()[0])


def make_environment(seed: int = 0, rules: Sequence[Rule] = RULES) -> TensorGraphEnvironment:
    """Episodes of at most four steps on the model."""
    sampler = contexts.uniform([relus()])
    return TensorGraphEnvironment(sampler, SIZES, rules, Hill(), seed)


def make_agent(module: ModuleType, **settings: Any) -> Any:
    """An agent of the environment, small unless said otherwise."""
    environment = make_environment()
    small = {"graph_width": 16, "graph_rounds": 2, "gamma": 1.0}
    config = module.Config(**small | settings)
    return module.make_agent(config, environment.time_step_spec(), environment.action_spec())


def data_of(agent: Any, version: int = 0) -> bytes:
    """What an actor of the agent loads."""
    return variables.to_bytes(agent.collect_policy.variables(), version)


def greedy_return(network: Any) -> float:
    """What a NumPy network's likeliest actions come to."""
    environment = make_environment()
    step, total = environment.reset(), 0.0
    while not step.is_last():
        (action,) = network.mode(batch(step.observation))
        step = environment.step(action)
        total += float(step.reward)
    return total


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """Makes what plays in a worker."""

    actor: NumpyActor
    num_episodes: int

    def __call__(self) -> EpisodeRunner:
        return EpisodeRunner([make_environment()], self.actor, self.num_episodes)


def specs(sizes: Settings = SIZES, rules: Any = RULES) -> dict[str, Any]:
    """Of observations."""
    return Observer(rules, sizes).specs()


@functools.cache
def _described(rules: tuple[Rule, ...]) -> dict[str, np.ndarray]:
    observation = make_environment(rules=rules).reset().observation
    return {name: observation[name] for name in ("rule_ids", "rule_targets")}


def random_observation(
    generator: np.random.Generator, num_nodes: int, sizes: Settings = SIZES, rules: Any = RULES
) -> dict[str, np.ndarray]:
    """Of a graph that means nothing, with a random number of actions on random nodes."""
    observer = Observer(rules, sizes)
    space: GraphSpace = observer.space
    num_edges = int(generator.integers(1, sizes.max_edges + 1))
    nodes = generator.uniform(size=(num_nodes, len(space.node_features)))
    nodes[:, 0] = generator.integers(1, len(space.kinds), num_nodes)
    seen = space.pad(
        nodes,
        generator.uniform(size=(num_edges, len(space.edge_features))),
        generator.integers(num_nodes, size=num_edges),
        generator.integers(num_nodes, size=num_edges),
        generator.uniform(size=len(space.global_features)),
    )
    zeros = {name: np.zeros(spec.shape, spec.dtype) for name, spec in observer.specs().items()}
    most = sizes.max_locations
    pairs = [(xfer, place) for xfer in range(len(rules)) for place in range(most)]
    chosen = generator.permutation(pairs)[: int(generator.integers(1, sizes.max_actions))]
    chosen = chosen[np.lexsort(chosen.T[::-1])]
    end = len(chosen) + 1
    listed = zeros["actions"]
    listed[:] = len(rules), 0
    listed[1:end] = chosen
    rows = {}
    for name in ("action_nodes", "action_inputs"):
        rows[name] = np.full_like(zeros[name], sizes.max_nodes)
        touched = generator.integers(num_nodes, size=rows[name][1:end].shape)
        is_there = generator.random(touched.shape) < 0.7
        is_there[:, 0] = True
        rows[name][1:end] = np.where(is_there, touched, sizes.max_nodes)
    rows["action_features"] = zeros["action_features"]
    rows["action_features"][1:end] = generator.uniform(size=(end - 1, len(MATCH_FEATURES)))
    described = _described(tuple(rules))
    return {
        **zeros,
        **seen,
        **rows,
        **described,
        "actions": listed,
        "action_mask": np.arange(sizes.max_actions) < end,
    }


def batch(*observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """[B, ...] of B observations."""
    return {
        name: np.stack([observation[name] for observation in observations])
        for name in observations[0]
    }


@functools.cache
def experience(module: ModuleType, **settings: Any) -> Any:
    """The experience of an agent that has learned nothing."""
    agent = make_agent(module, **settings)
    runner = MakeRunner(NumpyActor.from_policy(agent.collect_policy), 6)()
    runner.load(data_of(agent))
    return runner.run(Chunk(0, 0)).with_usual_length().trajectory
