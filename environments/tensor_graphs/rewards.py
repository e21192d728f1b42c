"""Reward functions for steps that change a graph (thesis, 3.2.4 and Fig. 4.6).

RT is a graph's runtime and M the bytes that it moves, both in percent of those of the model's first
graph, so that the same settings suit fast and slow models. The thesis has them in units of its own,
which it does not name; so its -100 for an invalid action (INVALID), which we keep as a number, may
weigh more or less there. The reward of the step from t - 1 to t:

  runtime              RT(t-1) - RT(t)                                  the thesis's R5
  runtime_and_memory   alpha (RT(t-1) - RT(t)) + beta (M(t-1) - M(t))   R1: 0.8, 0.2; R3: 0.1, 0.9;
                                                                        R4: 0.5, 0.5
  new_runtime          100 - RT(t)                                      R2
  terminal             100 - RT(t) with the last step, 0 before
  least_runtime        L(t) = min RT(0 … t-1) - min RT(0 … t)
  least_and_runtime    alpha L(t) + beta (RT(t-1) - RT(t)), the latter from -0.1 to 0.1

The thesis does not have the last three.

  - The sum of L over an episode is what the cheapest graph on its trail saves, and that graph is
    the result of the episode. Steps to costlier graphs on the way there cost nothing.
  - With R5 alone, random actions make graphs costlier at first, and a policy may learn from that to
    stop at once. With L alone, a policy learns nothing if random actions never make a graph
    cheaper. The sum has neither problem.
  - The second part of the sum is bounded, because one step can cost far more than the best step
    saves. Without the bound, a policy learns to take only steps that change nothing, since any step
    that it does not know may be costly.

The thesis names "new runtime" but does not define it. Here it is how much cheaper the new graph is
than the first one, so that stopping early does not pay in itself. Where the text of the thesis
speaks of "R4, the simplest reward function", it means the one that its figure calls R5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.measuring import Bench
from environments.tensor_graphs.execution.sizes import NONE_OPEN, OpenSizes, Sizes
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
"""The reward of an action that cannot be taken: as bad as making the first graph twice as slow."""


class Figures(NamedTuple):
    """Figures of a graph that rewards are made from, relative to the model's first graph.

    Attributes:
      runtime: RT / 100.
      memory: M / 100.
      least: the lowest `runtime` in the episode so far, including this graph's.
    """

    runtime: float
    memory: float
    least: float


RewardFn = Callable[[Figures, Figures, bool], float]
"""The reward of a step from one graph to the next one, the last of its episode or not."""

MeasureFn = Callable[[Graph, Graph], float]
"""(first graph, second graph) -> runtime of the second divided by that of the first, end to end."""


def make_reward(name: str, alpha: float = 0.8, beta: float = 0.2) -> RewardFn:
    """Return the reward function of a name, one of REWARDS or SYMBOLS.

    The latter have their own alpha and beta.

    Raises:
      UserError: no reward has this name.
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


def end_to_end(backend: Backend, seconds: float = 1.0, sizes: Sizes = NONE_OPEN) -> MeasureFn:
    """Return a function that measures one whole model against another, for some seconds.

    `sizes` are those that the models leave open, as the objective has them.
    """

    def measure(first: Graph, graph: Graph) -> float:
        models = write(first), write(graph)
        inputs = random_inputs(models[0], sizes=OpenSizes(first).with_symbols(sizes))
        return Bench(models[0], inputs, backend).compare(models[1], seconds=seconds).ratio.value

    return measure
