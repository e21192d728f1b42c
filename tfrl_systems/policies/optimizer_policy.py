"""A learned optimiser: the best x for given parameters c, by NumPy alone.

What learn_to_optimize trains is a policy over points s = (x, c) of the box [-1, 1]^n; its likeliest
action is the next x. A question gives only c. It starts where every question does, at x = 0:

    x_1 = π(0, …, 0, c),    x_{i+1} = π(x_i, c).

One step is the rule: an action was paid for its own value whatever x it started from, so a second
step only repeats the answer from another start.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from environments.errors import UserError
from tfrl_systems.policies import policy_files
from tfrl_systems.policies.numpy_actor import NETWORKS, NumpyNetwork


class OptimizerPolicy:
    """x = policy(c), in the box.

    Args:
      network: of a policy whose observations are points and whose actions are their first part.
      num_tuned: n - k, how many coordinates are chosen.
      steps: how often the policy is asked, each time from the x of its last answer.
    """

    def __init__(self, network: NumpyNetwork, num_tuned: int, steps: int = 1) -> None:
        self._network = network
        self._num_tuned = num_tuned
        self._num_free = network.num_inputs - num_tuned
        self._steps = steps
        self._start = np.zeros((1, network.num_inputs), np.float32)

    @classmethod
    def load(cls, directory: pathlib.Path | str, steps: int = 1) -> OptimizerPolicy:
        """Reads a directory that `tfrl train learn_to_optimize` wrote; imports no TensorFlow.

        Raises:
          UserError: there is no policy, one of something else, or its files are damaged.
        """
        described = policy_files.load_policy_json(directory)
        numbers = (described.get("dimensions"), described.get("free"))
        if described["kind"] != "actor" or not all(isinstance(one, int) for one in numbers):
            raise UserError(
                f"{directory}: expected a policy of learn_to_optimize, found one of "
                f"{described.get('environment', 'something else')}; name another"
            )
        network = load_network(directory)
        num_tuned = described["dimensions"] - described["free"]
        if (network.num_inputs, network.num_actions) != (described["dimensions"], num_tuned):
            raise UserError(
                f"{directory}: expected a policy from {described['dimensions']} numbers to "
                f"{num_tuned}, found one from {network.num_inputs} to {network.num_actions}; "
                "export the policy again"
            )
        return cls(network, num_tuned, steps)

    def __call__(self, c: Any) -> np.ndarray:
        """The x for each c.

        Args:
          c: [k] or [N, k], free parameters in [-1, 1].

        Returns:
          float32 [n - k] or [N, n - k], in [-1, 1].

        Raises:
          ValueError: c has another number of parameters.
        """
        given = np.asarray(c)
        if given.shape[-1:] != (self._num_free,) or given.ndim > 2:
            raise ValueError(
                f"policy: expected c as [{self._num_free}] or [N, {self._num_free}], found "
                f"{list(given.shape)}"
            )
        if given.size == self._num_free:
            points = self._start
            points[:, : self._num_tuned] = 0
        else:
            points = np.zeros((len(given), self._network.num_inputs), np.float32)
        points[:, self._num_tuned :] = given
        x = self._network.mode(points)
        for _ in range(1, self._steps):
            points[:, : self._num_tuned] = x
            x = self._network.mode(points)
        return x[0] if given.ndim == 1 else x


def load_network(directory: pathlib.Path | str, kind: str = "actor") -> Any:
    """The actor network of a saved policy; imports no TensorFlow.

    Args:
      directory: the policy's.
      kind: one of `numpy_actor.NETWORKS`.

    Raises:
      UserError: there is no policy, one of another kind, or its files are damaged.
    """
    described = policy_files.load_policy_json(directory)
    if described["kind"] != kind:
        raise UserError(
            f"{directory}: expected a policy of PPO or REINFORCE of the kind {kind}, found one of "
            f"{described['kind']}; name another"
        )
    arrays = policy_files.load_arrays(directory, described)
    try:
        return NETWORKS[kind](described, arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{directory}: expected a policy whose files fit each other, found {error!r}; "
            "export the policy again"
        ) from error
