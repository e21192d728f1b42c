"""A policy gradient agent's actor network in NumPy.

The arithmetic is that of `networks/actors.py`, in float32, after PPO's observation normaliser; the
results agree up to rounding. A layer's bias is the last row of its matrix, and every input ends
with a 1. So a layer is one matrix product and one activation, which maps c to 1:

    [x, 1] @ [[W, 0], [b, c]] = [x W + b, c].

Written as in TensorFlow, with a sum for each bias, one decision would take about twice as long.
"""

from __future__ import annotations

import functools
import itertools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrl_systems.policies import distributions

# These are arrays because NumPy is faster with them than with numbers.
_ZERO, _ONE, _TWO = (np.array(value, np.float32) for value in (0, 1, 2))
# The variables and constants of TF-Agents' StreamingTensorNormalizer.
_NORMALISER = ("count", "mean", "squares")
_NORMALISER_LIMIT = np.float32(5)
_NORMALISER_EPSILON = np.float32(1e-3)

# Each function takes (sums, array for the result). Beside it: a value that it maps to exactly 1.
_ACTIVATIONS: Mapping[str, tuple[Callable[..., Any], float]] = {
    "tanh": (np.tanh, 20.0),
    "relu": (lambda sums, out: np.maximum(sums, _ZERO, out), 1.0),
}
# Larger batches are processed in blocks of this many rows, which fit into the processor's cache.
_BLOCK = 128
# Each thread keeps buffers for at most this many batch sizes.
_MAX_BATCH_SIZES = 4


class Inputs:
    """Joins the leaves of observations, as `networks.inputs` does.

    Args:
      described: the leaves, as JSON values.

    Attributes:
      sizes: how many numbers each leaf has.
      size: how many numbers an observation has.
    """

    def __init__(self, described: Sequence[Mapping[str, Any]]) -> None:
        self._paths = [tuple(leaf["path"]) for leaf in described]
        self.sizes = [int(leaf["size"]) for leaf in described]
        self.size = sum(self.sizes)
        self._is_vector = self._paths == [()]
        integers = [
            bool(leaf["is_integer"]) for leaf in described for _ in range(int(leaf["size"]))
        ]
        self._integers = np.flatnonzero(integers)

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the leaves side by side, [B, F]; each integer x becomes sign(x) log(1 + |x|)."""
        rows = observation if self._is_vector else self._join(observation)
        if len(self._integers):
            rows = np.array(rows, np.float32)
            chosen = rows[:, self._integers]
            rows[:, self._integers] = np.copysign(np.log1p(np.abs(chosen)), chosen)
        return rows

    def _join(self, observation: Any) -> np.ndarray:
        leaves = [functools.reduce(operator.getitem, path, observation) for path in self._paths]
        rows = np.empty((len(leaves[0]), self.size), np.float32)
        end = 0
        for leaf, size in zip(leaves, self.sizes, strict=True):
            start, end = end, end + size
            rows[:, start:end] = leaf.reshape(len(rows), size)
        return rows


class _Buffers(threading.local):
    """Buffers by the number of rows, separate ones for each thread.

    A copy of the network begins without any, because buffers stand beside the layers that write to
    them.

    Attributes:
      by_size: the buffers of the current thread.
    """

    def __init__(self) -> None:
        self.by_size: dict[int, tuple[Any, ...]] = {}

    def __reduce__(self) -> Any:
        return type(self), ()


class Memoryless:
    """A network whose action depends on the observation alone, unlike `NumpyController`'s.

    Whoever plays episodes calls `begin` and `remember` on either kind. Both are made of a
    description and arrays, and raise a KeyError if one is missing, or a ValueError if the shape of
    an array does not fit the description.
    """

    def parameters(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the parameters of each row's action distribution (see `distributions`)."""
        raise NotImplementedError

    def parameters_at_start(self, observation: Any) -> dict[str, np.ndarray]:
        """Return what `parameters` would at the start of an episode."""
        return self.parameters(observation)

    def draw(self, parameters: Mapping[str, np.ndarray], generator: np.random.Generator) -> Any:
        """Draw one action for each row."""
        return distributions.draw(parameters, generator)

    def mode(self, observation: Any) -> np.ndarray:
        """Return the likeliest action of each row."""
        return distributions.mode(self.parameters(observation))

    def new_episode(self) -> Memoryless:
        """Return the network to play another episode with: this one."""
        return self

    def begin(self, is_first: np.ndarray | None = None) -> None:
        """Do nothing where episodes begin, in rows bool [B]; None for all."""

    def remember(self, action: np.ndarray) -> None:
        """Do nothing after an action."""

    def first_step(self) -> Any:
        """Return the network of an episode's first step: this one."""
        return self


class NumpyNetwork(Memoryless):
    """The actor network, and the observation normaliser before it if there is one.

    Several threads may use it at once, but only while none of them calls `update`.

    Args:
      description: as `networks.actors.ActorNetwork.describe` returns it.
      arrays: kernel_0, bias_0, …; log_std if actions are floats; and if observations are
        normalised, count_i, mean_i and squares_i of leaf i: the number of observations seen, their
        mean, and the sum of their squared deviations from the mean.

    Attributes:
      num_inputs: how many numbers an observation has.
      num_actions: how many numbers a float action has, or how many integer actions there are.
      activation: name of the hidden layers' activation.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._inputs = Inputs(description["inputs"])
        self.num_inputs = self._inputs.size
        actions = description["actions"]
        self._is_normal = actions["kind"] == "normal"
        self.num_actions = int(actions["size"])
        # Policies that were saved before observations could hold permits have none.
        self._permits = str(description.get("permits", ""))
        self._masked = np.float32(description.get("masked", 0))
        self._num_places = int(actions.get("num_places", 0))
        self._max_place_logit = np.float32(description.get("max_place_logit", 0))
        low, high = (np.array(actions[name], np.float32) for name in ("low", "high"))
        self._middle, self._half_range = (low + high) / 2, (high - low) / 2
        self._has_unit_range = bool(np.all((low == -1) & (high == 1)))
        self._has_std_layer = self._is_normal and bool(description["state_dependent_std"])
        self._log_std_limits = [
            np.array(limit, np.float32) for limit in description["log_std_limits"]
        ]
        self._is_normalised = "count_0" in arrays
        self.activation = str(description["activation"])
        self._activate, unit = _ACTIVATIONS[self.activation]
        outputs = self.num_actions * (2 if self._has_std_layer else 1) + self._num_places
        self._sizes = [self.num_inputs, *map(int, description["hidden_sizes"]), outputs]
        self._layers = _empty_layers(self._sizes, unit)
        self._buffers = _Buffers()
        self._check(arrays)
        self.update(arrays)

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        for number, layer in enumerate(self._layers):
            inputs, outputs = self._sizes[number], self._sizes[number + 1]
            layer[:inputs, :outputs] = arrays[f"kernel_{number}"]
            layer[inputs, :outputs] = arrays[f"bias_{number}"]
        if self._is_normal:
            self._log_std = np.array(arrays["log_std"])
            self._std = self._exp(self._log_std)
        if self._is_normalised:
            count, mean, squares = (
                np.concatenate(
                    [arrays[f"{name}_{i}"].ravel() for i in range(len(self._inputs.sizes))]
                )
                for name in _NORMALISER
            )
            self._normalise_first_layer(mean, np.sqrt(squares / count + _NORMALISER_EPSILON))

    @property
    def input_limits(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The limits that inputs are clipped to, float32 [F] each; None without a normaliser."""
        return (self._least, self._greatest) if self._is_normalised else None

    @property
    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Kernel and bias of each layer, copies; the normalisation is in the first.

        The last layer has the columns of the actions alone.
        """
        sizes = [*self._sizes[1:-1], self.num_actions]
        return [
            (layer[:-1, :size].copy(), layer[-1, :size].copy())
            for layer, size in zip(self._layers, sizes, strict=True)
        ]

    @property
    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Middle of the range of float actions, and half of its width, float32 [n] each."""
        return self._middle, self._half_range

    def parameters(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the parameters of each row's action distribution, as in `distributions`."""
        sums = self._sums(observation)
        if self._num_places:
            num_places = observation[self._permits]
            rules, places = np.split(sums, [self.num_actions], axis=1)
            most = self._max_place_logit
            return {
                "rule_logits": np.where(num_places > 0, rules, self._masked),
                "place_logits": most * np.tanh(places / most),
                "num_places": num_places,
            }
        if not self._is_normal and self._permits:
            return {"logits": np.where(observation[self._permits], sums, self._masked)}
        if not self._is_normal:
            return {"logits": sums.copy()}
        squashed = np.tanh(sums)
        if self._has_std_layer:
            scale = self._exp((_ONE + squashed[:, self.num_actions :]) / _TWO + self._log_std)
        else:
            scale = np.empty(squashed.shape, np.float32)
            scale[:] = self._std
        return {"loc": self._mean(squashed), "scale_diag": scale}

    def mode(self, observation: Any) -> np.ndarray:
        """Return the likeliest action of each row: float32 [B, n], int64 [B], or pairs [B, 2]."""
        if self._permits:
            return distributions.mode(self.parameters(observation))
        sums = self._sums(observation)
        return self._mean(np.tanh(sums)) if self._is_normal else sums.argmax(axis=1)

    def _normalise_first_layer(self, mean: np.ndarray, std: np.ndarray) -> None:
        """Fold the normalisation, (x - mean) / std clipped to ±5, into layer 0 and input limits."""
        first = self._layers[0]
        outputs = self._sizes[1]
        kernel = first[:-1, :outputs] / std[:, np.newaxis]
        first[:-1, :outputs] = kernel
        first[-1, :outputs] -= mean @ kernel
        self._least, self._greatest = (
            mean + sign * _NORMALISER_LIMIT * std for sign in (np.float32(-1), np.float32(1))
        )

    def _mean(self, squashed: np.ndarray) -> np.ndarray:
        mean = squashed[:, : self.num_actions]
        if not self._has_unit_range:
            np.multiply(mean, self._half_range, mean)
            np.add(mean, self._middle, mean)
        return mean

    def _exp(self, log_std: np.ndarray) -> np.ndarray:
        least, greatest = self._log_std_limits
        std: np.ndarray = np.exp(np.minimum(np.maximum(log_std, least), greatest))
        return std if self._has_unit_range else std * self._half_range

    def _sums(self, observation: Any) -> np.ndarray:
        """Return the last layer's sums [B, outputs]; this thread's next call overwrites them."""
        rows = self._inputs(observation)
        if len(rows) <= _BLOCK:
            return self._forward(rows)
        sums = np.empty((len(rows), self._sizes[-1]), np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            sums[start : start + _BLOCK] = self._forward(block)
        return sums

    def _forward(self, rows: np.ndarray) -> np.ndarray:
        buffers = self._buffers.by_size.get(len(rows)) or self._prepare(rows)
        inputs, values, hidden, last, sums = buffers
        if self._is_normalised:
            np.maximum(rows, self._least, inputs)
            np.minimum(inputs, self._greatest, inputs)
        else:
            inputs[...] = rows
        for layer, buffer in hidden:
            values = self._activate(np.dot(values, layer, buffer), buffer)
        return np.dot(values, last, sums)

    def _prepare(self, rows: np.ndarray) -> tuple[Any, ...]:
        """Make buffers for a batch of this size, beside the layers that write to them."""
        by_size = self._buffers.by_size
        if len(by_size) >= _MAX_BATCH_SIZES:
            by_size.clear()
        values = np.ones((len(rows), self.num_inputs + 1), np.float32)
        sums = [np.empty((len(rows), layer.shape[1]), np.float32) for layer in self._layers]
        hidden = list(zip(self._layers[:-1], sums[:-1], strict=True))
        buffers = (values[:, :-1], values, hidden, self._layers[-1], sums[-1])
        by_size[len(rows)] = buffers
        return buffers

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes: dict[str, tuple[int, ...]] = {}
        for number, pair in enumerate(itertools.pairwise(self._sizes)):
            shapes |= {f"kernel_{number}": pair, f"bias_{number}": pair[1:]}
        if self._is_normal:
            shapes["log_std"] = (self.num_actions,)
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} of the shape {arrays[name].shape}, not {shape}")
        for name in _NORMALISER if self._is_normalised else ():
            sizes = [arrays[f"{name}_{i}"].size for i in range(len(self._inputs.sizes))]
            if sizes != self._inputs.sizes:
                raise ValueError(f"{name} of the sizes {sizes}")


def _empty_layers(sizes: Sequence[int], unit: float) -> list[np.ndarray]:
    """Return a matrix of zeros for each layer; all except the last pass on the 1."""
    layers = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        is_last = number == len(sizes) - 2
        layer = np.zeros((inputs + 1, outputs + (not is_last)), np.float32)
        if not is_last:
            layer[inputs, outputs] = unit
        layers.append(layer)
    return layers


def within(place: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copy the arrays whose names begin with `place`, and remove that from their names."""
    return {
        name.removeprefix(place): np.array(array)
        for name, array in arrays.items()
        if name.startswith(place)
    }
