"""A learned optimiser in NumPy: it returns a good x for given parameters c.

learn_to_optimize trains a policy over points s = (x, c) of the box [-1, 1]^n. The likeliest action
is the next x, and its value does not depend on the x before it. A user gives only c: x = π(0, c).

A caller who has the function can have each answer polished by a few evaluations of it, by SciPy's
COBYQA (T. Ragonneau, Z. Zhang: Model-Based Derivative-Free Optimization Methods and Software,
2022). It fits a quadratic to the values that it has seen, and asks next where that is least within
a radius that it adapts. It needs no gradient and stays in the box.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize.functions import RowFunction
from tfrl_systems.policies import policy_files
from tfrl_systems.policies.numpy_actor import load_network

if TYPE_CHECKING:
    import onnx

    from tfrl_systems.systems.learn_to_optimize.onnx_policy import Network

_KINDS = ("actor", "controller", "mixture")
# How far COBYQA looks at first, in a box from -1 to 1: a policy's answers are about as far off.
_RADIUS, _LAST_RADIUS = 0.03, 1e-8


def load_description(directory: pathlib.Path | str) -> dict[str, Any]:
    """Read the policy.json of an optimiser.

    Raises:
      UserError: there is none, or it is a policy of something else.
    """
    described = policy_files.load_policy_json(directory)
    environment = described.get("environment", "something else")
    if environment != "learn_to_optimize" or described["kind"] not in _KINDS:
        raise UserError(
            f"{directory}: expected a policy of learn_to_optimize, found one of {environment}, "
            f"of the kind {described['kind']}; name another"
        )
    for name in ("dimensions", "free"):
        if type(described.get(name)) is not int:
            raise UserError(
                f"{directory}: expected a policy that says its numbers of parameters, found "
                f"{name} missing or wrong; export the policy again"
            )
    return described


class OptimizerPolicy:
    """A function from c to x in the box. Several threads may call it at once.

    Args:
      network: network of a policy from points (x, c) to the next x.
      num_tuned: n - k.
      polish: the most evaluations of the function that make each answer better; 0 for none.
      function: rows (x, c) float64 [N, n] of the box [-1, 1]^n -> values [N]; only to polish.

    Raises:
      UserError: only one of `polish` and `function` is given.
    """

    def __init__(
        self,
        network: Network,
        num_tuned: int,
        polish: int = 0,
        function: RowFunction | None = None,
    ) -> None:
        if bool(polish) != (function is not None) or polish < 0:
            raise UserError(
                f"policy: expected polish from 1 on together with a function, found {polish} and "
                f"{'a' if function else 'no'} function; give both or neither"
            )
        self._polish, self._function = polish, function
        self._network = network
        self._num_tuned = num_tuned
        self._num_free = network.num_inputs - num_tuned

    @classmethod
    def load(
        cls,
        directory: pathlib.Path | str,
        polish: int = 0,
        function: RowFunction | None = None,
    ) -> OptimizerPolicy:
        """Read a directory that `tfrl train learn_to_optimize` wrote, without TensorFlow.

        Raises:
          UserError: there is no policy, one of something else, or its files are damaged; or only
            one of `polish` and `function` is given.
        """
        described = load_description(directory)
        network = load_network(directory).first_step()
        num_tuned = described["dimensions"] - described["free"]
        if (network.num_inputs, network.num_actions) != (described["dimensions"], num_tuned):
            raise UserError(
                f"{directory}: expected a policy from {described['dimensions']} numbers to "
                f"{num_tuned}, found one from {network.num_inputs} to {network.num_actions}; "
                "export the policy again"
            )
        return cls(network, num_tuned, polish, function)

    def to_onnx(self) -> onnx.ModelProto:
        """Return the optimiser, unpolished, as an ONNX model, from c [N, k] to x [N, n - k]."""
        from tfrl_systems.systems.learn_to_optimize import onnx_policy

        return onnx_policy.to_onnx(self._network, self._num_free)

    def __call__(self, c: Any) -> np.ndarray:
        """Return the x for each c.

        Args:
          c: [k] or [N, k], free parameters in [-1, 1].

        Returns:
          float32 [n - k] or [N, n - k], in [-1, 1].

        Raises:
          ValueError: c has another number of parameters.
        """
        free = np.asarray(c)
        if free.shape[-1:] != (self._num_free,) or free.ndim > 2:
            raise ValueError(
                f"policy: expected c as [{self._num_free}] or [N, {self._num_free}], found "
                f"{list(free.shape)}"
            )
        num_rows = len(free) if free.ndim == 2 else 1
        points = np.zeros((num_rows, self._network.num_inputs), np.float32)
        points[:, self._num_tuned :] = free
        x = self._network.mode(points)
        if self._function is not None:
            polished = [
                polish_point(self._function, row, point[self._num_tuned :], self._polish)
                for row, point in zip(x, points, strict=True)
            ]
            x = np.array(polished, np.float32)
        return x[0] if free.ndim == 1 else x


def polish_point(
    function: RowFunction, x: np.ndarray, c: np.ndarray, evaluations: int
) -> np.ndarray:
    """Return the best of the points that are evaluated, x first.

    Args:
      function: f, over the box [-1, 1]^n.
      x: [m], the point to begin at, in the box.
      c: [k], the free parameters.
      evaluations: the most evaluations of f, 1 or more. Values that are no finite number are worse
        than all others.

    Returns:
      float64 [m], in the box; never worse than x.
    """
    from scipy import optimize

    start = np.asarray(x, np.float64)
    best_x, best_value = start, np.inf

    def value_of(point: np.ndarray) -> float:
        nonlocal best_x, best_value
        inside = np.clip(point, -1.0, 1.0)
        value = float(function(np.concatenate([inside, c])[np.newaxis])[0])
        if np.isfinite(value) and value < best_value:
            best_x, best_value = inside.copy(), value
        return value

    # The first quadratic needs this many values.
    if evaluations <= 2 * len(start) + 1:
        _look_around(value_of, start, evaluations)
        return best_x
    optimize.minimize(
        value_of,
        start,
        method="COBYQA",
        bounds=[(-1.0, 1.0)] * len(start),
        options={
            "maxfev": evaluations,
            "initial_tr_radius": _RADIUS,
            "final_tr_radius": _LAST_RADIUS,
        },
    )
    return best_x


def _look_around(
    value_of: Callable[[np.ndarray], float], start: np.ndarray, evaluations: int
) -> None:
    """Evaluate the start, and then steps along the axes, in turn up and down."""
    value_of(start)
    for number in range(evaluations - 1):
        point = start.copy()
        point[number // 2] += _RADIUS if number % 2 == 0 else -_RADIUS
        value_of(point)
