"""Rewards of steps that change a graph (thesis, 3.2.4 and Fig. 4.6).

RT is a graph's runtime and M the bytes it moves, both in percent of those of the model's first
graph: so one setting serves a model of 0.1 ms and one of 100 ms. With the step from t - 1 to t:

  runtime              RT(t-1) - RT(t)                                  the thesis's R5
  runtime_and_memory   alpha (RT(t-1) - RT(t)) + beta (M(t-1) - M(t))   R1: 0.8, 0.2; R3: 0.1, 0.9;
                                                                        R4: 0.5, 0.5
  new_runtime          100 - RT(t)                                      R2
  terminal             100 - RT(t) with the last step, 0 before
  least_runtime        L(t) = min RT(0 … t-1) - min RT(0 … t)
  least_and_runtime    alpha L(t) + beta (RT(t-1) - RT(t)), the latter from -0.1 to 0.1

The last two are ours. The sum of L over an episode is what the cheapest graph on its trail saves,
and that is the graph that one takes; dearer graphs on the path to it cost nothing. With R5,
chance makes graphs dearer at first, and what is learned from that may be to stop at once. With L
alone, where chance never makes them cheaper nothing is learned. Their sum has neither fault. Its
second part is bounded, because a step can cost a hundred times what the best one saves: a policy
then learns to do only what changes nothing, since all that is new to it may be dear.

The thesis names "new runtime" and does not define it; ours is how much better than the first graph
the new one is, so that stopping early is no gain in itself. Where its text speaks of "R4, the
simplest reward function", it means the one that the figure calls R5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.measuring import compare
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import write

REWARDS = ("runtime", "runtime_and_memory", "new_runtime", "terminal", "least_runtime",
           "least_and_runtime")  # fmt: skip
SYMBOLS = {
    "R1": ("runtime_and_memory", 0.8, 0.2),
    "R2": ("new_runtime", 1.0, 0.0),
    "R3": ("runtime_and_memory", 0.1, 0.9),
    "R4": ("runtime_and_memory", 0.5, 0.5),
    "R5": ("runtime", 1.0, 0.0),
}
_BOUND = 0.1
INVALID = -100.0
"""Of an action that cannot be taken: as bad as a graph that takes twice as long as the first."""


class Figures(NamedTuple):
    """Of a graph, over those of the model's first graph.

    Attributes:
      runtime: RT / 100.
      memory: M / 100.
      least: the least runtime in the episode so far, this graph's included.
    """

    runtime: float
    memory: float
    least: float


RewardFn = Callable[[Figures, Figures, bool], float]
"""The reward of a step from one graph to the next one, the last of its episode or not."""

MeasureFn = Callable[[Graph, Graph], float]
"""Runtime of the second graph over that of the first, end to end."""


def make_reward(name: str, alpha: float = 0.8, beta: float = 0.2) -> RewardFn:
    """The reward of that name.

    Args:
      name: one of REWARDS or SYMBOLS; the latter have their own alpha and beta.
      alpha: weight of the runtime, of "runtime_and_memory"; or of the least one.
      beta: weight of the memory that is accessed, likewise; or of the runtime.

    Raises:
      UserError: there is none of that name.
    """
    name, alpha, beta = SYMBOLS.get(name, (name, alpha, beta))
    if name not in REWARDS:
        raise UserError(
            f"reward: expected one of {', '.join((*REWARDS, *SYMBOLS))}, found {name!r}; correct "
            "the name"
        )

    def reward(before: Figures, after: Figures, is_last: bool) -> float:
        if name == "new_runtime":
            return 100 * (1 - after.runtime)
        if name == "terminal":
            return 100 * (1 - after.runtime) if is_last else 0.0
        least_gain = before.least - after.least
        if name == "least_runtime":
            return 100 * least_gain
        gain = before.runtime - after.runtime
        if name == "least_and_runtime":
            return alpha * 100 * least_gain + beta * min(max(100 * gain, -_BOUND), _BOUND)
        if name == "runtime_and_memory":
            gain = alpha * gain + beta * (before.memory - after.memory)
        return 100 * gain

    return reward


def end_to_end(backend: Backend, seconds: float = 1.0) -> MeasureFn:
    """Measures whole models in turns, so that what else the machine does hardly matters.

    Args:
      backend: runs them.
      seconds: of wall time for each measurement.
    """

    def measure(first: Graph, other: Graph) -> float:
        models = write(first), write(other)
        inputs = random_inputs(models[0])
        return compare(*models, inputs, backend, seconds=seconds).ratio.value

    return measure
