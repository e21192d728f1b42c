"""A mixture's actor network in NumPy: several answers, and the judge that chooses among them.

The arithmetic is that of `networks/mixture.py`; the results agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl_systems.policies.numpy_network import Memoryless, NumpyNetwork, within

# As in networks/mixture.py.
_LEAST_WEIGHT = np.float32(1e-30)


class NumpyMixture(Memoryless):
    """The network of K answers and their judge.

    Args:
      description: as `networks.mixture.MixtureNetwork.describe` returns it.
      arrays: those of both perceptrons, as `NumpyNetwork` takes them, after "answers/" and
        "judge/"; and even_share, the share of actions drawn from all components alike.

    Attributes:
      answers: the network of all answers, [K n] numbers.
      judge: the network of K values, and of as many logarithms of their usual errors.
      num_components, num_actions: K and n.
      num_inputs: how many numbers an observation has.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.num_components = int(description["components"])
        self.num_actions = int(description["actions"]["size"])
        self._description = description
        self.update(arrays)
        self.num_inputs = self.answers.num_inputs
        sizes = self.answers.num_actions, self.judge.num_actions
        expected = self.num_components * self.num_actions, 2 * self.num_components
        if sizes != expected:
            raise ValueError(f"answers and judge of the sizes {sizes}, not {expected}")

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        self.answers = NumpyNetwork(self._description["answers"], within("answers/", arrays))
        self.judge = NumpyNetwork(self._description["judge"], within("judge/", arrays))
        self._even_share = np.float32(arrays["even_share"])

    def parameters(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the parameters of each row's action distribution, as in `distributions`."""
        values, log_spreads = np.split(self.judge.parameters(observation)["logits"], 2, axis=1)
        rows = np.arange(len(values))
        spread = np.exp(log_spreads[rows, values.argmax(axis=1)])[:, np.newaxis]
        shares = np.exp((values - values.max(axis=1, keepdims=True)) / spread)
        shares /= shares.sum(axis=1, keepdims=True)
        even = self._even_share / np.float32(self.num_components)
        weights = (np.float32(1) - self._even_share) * shares + even
        shape = (len(values), self.num_components, self.num_actions)
        answers = self.answers.parameters(observation)
        return {
            "logits": np.log(np.maximum(weights, _LEAST_WEIGHT)),
            **{name: array.reshape(shape) for name, array in answers.items()},
        }
