"""Actor and value networks of policy gradient agents, made from specs.

Observations: a nest of arrays. Floats enter unchanged. Integers (counts, costs, flags) enter as
their signed logarithm, sign(x) log(1 + |x|). All leaves are flattened and joined in the order of
`tf.nest.flatten`, which sorts the names of a dict.

Actions: a bounded float32 vector has a normal distribution, whose mean tanh keeps within the
bounds. An integer scalar 0 … n-1 has a categorical distribution.

    observation [B, ...] ─▶ inputs [B, F] ─▶ hidden layers ─▶ outputs ─▶ distribution, or value [B]

The caller passes in the generator that draws the initial weights. So two networks made from the
same seed are equal, whatever TensorFlow drew before. The variables have fixed names, so nothing
depends on how many networks a process made earlier. `policies/numpy_actor.py` does the same
arithmetic in NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.utils import nest_utils

from environments.errors import UserError

ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}

LOG_STD_LIMITS = (-9.0, 1.0)
"""Limits of log standard deviations: 0.0001 to 2.7 times half the range of the action."""

# The first outputs are small, so the first policy is nearly constant and the first values near 0.
_OUTPUT_GAIN = 0.01

# If inputs are floats, in boxes or normalised, random biases spread the bends of the first layer's
# units over [-1, 1]. With biases of 0 all bends pass through the origin, and the network is slow to
# learn anything far from it.
_FLOAT_GAIN = 2.0


@dataclasses.dataclass(frozen=True)
class Inputs:
    """One leaf of the observation.

    Attributes:
      path: the keys that lead to it; () if the observation is one array.
      size: how many numbers it has.
      is_integer: whether it enters as its signed logarithm.
    """

    path: tuple[str, ...]
    size: int
    is_integer: bool


@dataclasses.dataclass(frozen=True)
class Actions:
    """The kind, size and bounds of the action.

    Attributes:
      kind: "normal" for a bounded float32 vector, "categorical" for an integer scalar.
      size: how many numbers a float action has, or how many integer actions there are.
      low: least values of a float action; empty for integers.
      high: greatest values of a float action; empty for integers.
      dtype: name of the action's dtype.
    """

    kind: str
    size: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class ActorSettings:
    """Settings of an actor that its specs do not decide.

    Attributes:
      hidden_sizes: units of the hidden layers.
      activation: activation of the hidden layers, "tanh" or "relu".
      action_std: standard deviation of a float action at the start, as a share of half its range.
      state_dependent_std: whether the standard deviation depends on the observation. It then lies
        between the one that is set and e times that.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    action_std: float
    state_dependent_std: bool


def read_observation_spec(observation_spec: Any) -> tuple[Inputs, ...]:
    """Return the leaves of an observation spec, in the order in which they are joined.

    Args:
      observation_spec: a nest of tensor specs.

    Returns:
      The leaves.

    Raises:
      UserError: a leaf does not hold numbers.
    """
    found = []
    for path, spec in nest_utils.flatten_with_tuple_paths(observation_spec):
        if not (spec.dtype.is_floating or spec.dtype.is_integer):
            raise UserError(
                f"observation {'/'.join(map(str, path))}: expected numbers, found {spec.dtype.name}"
            )
        size = int(np.prod(spec.shape.as_list(), dtype=np.int64))
        found.append(Inputs(tuple(map(str, path)), size, spec.dtype.is_integer))
    return tuple(found)


def read_action_spec(action_spec: Any) -> Actions:
    """Return the kind, size and bounds of an action spec.

    Args:
      action_spec: a bounded float32 vector, or an integer scalar from 0 on.

    Returns:
      The action's properties.

    Raises:
      UserError: it is neither a bounded float32 vector nor an integer scalar from 0 on.
    """
    if isinstance(action_spec, tensor_spec.BoundedTensorSpec):
        shape, dtype = action_spec.shape.as_list(), action_spec.dtype
        low, high = (
            np.broadcast_to(bound, shape) for bound in (action_spec.minimum, action_spec.maximum)
        )
        if (
            dtype == tf.float32
            and len(shape) == 1
            and np.all((low < high) & np.isfinite(high - low))
        ):
            return Actions(
                "normal", shape[0], tuple(low.tolist()), tuple(high.tolist()), dtype.name
            )
        if dtype.is_integer and not shape and low == 0 < high:
            return Actions("categorical", int(high) + 1, (), (), dtype.name)
    raise UserError(
        "action: expected a bounded float32 vector, or an integer scalar from 0 on; "
        f"found {action_spec}"
    )


class _Perceptron(network.Network):
    """A perceptron over the joined inputs: hidden layers, then a linear layer."""

    def __init__(
        self,
        observation_spec: Any,
        hidden_sizes: Sequence[int],
        activation: str,
        num_outputs: int,
        generator: np.random.Generator,
        name: str,
    ) -> None:
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name=name)
        self.inputs = read_observation_spec(observation_spec)
        self._activation = ACTIVATIONS[activation]
        sizes = [sum(one.size for one in self.inputs), *hidden_sizes, num_outputs]
        # One list of kernel, bias, kernel, …, because Keras keeps its order in `variables`.
        self._layers = []
        for number, pair in enumerate(zip(sizes, sizes[1:], strict=False)):
            is_last = number == len(hidden_sizes)
            gain = _OUTPUT_GAIN if is_last else 1.0 if activation == "tanh" else math.sqrt(2.0)
            bias = np.zeros(pair[1])
            if number == 0 and not is_last and are_floats(self.inputs):
                gain *= _FLOAT_GAIN
                bias = generator.uniform(-gain, gain, pair[1])
            kernel = generator.normal(scale=gain / math.sqrt(pair[0]), size=pair)
            part = f"{name}/output" if is_last else f"{name}/hidden{number}"
            self._layers += [
                tf.Variable(kernel.astype(np.float32), name=f"{part}/kernel"),
                tf.Variable(bias.astype(np.float32), name=f"{part}/bias"),
            ]

    def _outputs(self, observation: Any) -> tf.Tensor:
        """Return the last layer's sums, float32 [..., num_outputs]."""
        outer_rank = nest_utils.get_outer_rank(observation, self.input_tensor_spec)
        leaves = tf.nest.flatten(observation)
        outer_shape = tf.shape(leaves[0])[:outer_rank]
        columns = [
            tf.reshape(signed_log(leaf) if one.is_integer else tf.cast(leaf, tf.float32), shape)
            for leaf, one in zip(leaves, self.inputs, strict=True)
            for shape in ([-1, one.size],)
        ]
        hidden = tf.concat(columns, axis=1) if len(columns) > 1 else columns[0]
        *kernels, last_kernel = self._layers[0::2]
        *biases, last_bias = self._layers[1::2]
        for kernel, bias in zip(kernels, biases, strict=True):
            hidden = self._activation(tf.matmul(hidden, kernel) + bias)
        outputs = tf.matmul(hidden, last_kernel) + last_bias
        return tf.reshape(outputs, tf.concat([outer_shape, [outputs.shape[-1]]], axis=0))


class ActorNetwork(_Perceptron):
    """A network from observations to a distribution over actions.

    Args:
      observation_spec: a nest of specs of numbers.
      action_spec: a bounded float32 vector, or an integer scalar from 0 on.
      settings: settings of the network.
      generator: draws the initial weights.

    Raises:
      UserError: a spec is of another kind.
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        settings: ActorSettings,
        generator: np.random.Generator,
    ) -> None:
        actions = read_action_spec(action_spec)
        is_normal = actions.kind == "normal"
        super().__init__(
            observation_spec,
            settings.hidden_sizes,
            settings.activation,
            actions.size * (2 if is_normal and settings.state_dependent_std else 1),
            generator,
            "actor",
        )
        self._actions = actions
        self._settings = settings
        self._log_std = None
        if is_normal:
            low, high = np.array(actions.low, np.float32), np.array(actions.high, np.float32)
            self._middle, self._half_range = (low + high) / 2, (high - low) / 2
            start = np.full(low.shape, math.log(settings.action_std), np.float32)
            self._log_std = tf.Variable(start, trainable=False, name="actor/log_std")

    def call(
        self,
        observation: Any,
        step_type: Any = (),
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[tfp.distributions.Distribution, Any]:
        """Return the action's distribution and no state; observations [B, ...] or [B, T, ...]."""
        outputs = self._outputs(observation)
        if self._log_std is None:
            distribution = tfp.distributions.Categorical(
                logits=outputs, dtype=tf.as_dtype(self._actions.dtype)
            )
            return distribution, network_state
        log_std = self._log_std
        if self._settings.state_dependent_std:
            outputs, log_std_change = tf.split(outputs, 2, axis=-1)
            log_std = log_std + (1 + tf.tanh(log_std_change)) / 2
        std = tf.exp(tf.clip_by_value(log_std, *LOG_STD_LIMITS)) * self._half_range
        mean = self._middle + self._half_range * tf.tanh(outputs)
        distribution = tfp.distributions.MultivariateNormalDiag(
            loc=mean, scale_diag=tf.broadcast_to(std, tf.shape(mean))
        )
        return distribution, network_state

    def set_std(self, share: float) -> None:
        """Set the standard deviation of float actions, as a share of half their range."""
        if self._log_std is not None:
            self._log_std.assign(tf.fill(self._log_std.shape, math.log(share)))

    def once(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing: actor and value network share no computation here."""
        return contextlib.nullcontext()

    @property
    def can_be_normalized(self) -> bool:
        """Return whether no observation is an integer."""
        return are_floats(self.inputs)

    def describe(self) -> dict[str, Any]:
        """Return what `policies.numpy_actor` needs beside the variables, as JSON values."""
        return {
            "kind": "actor",
            "inputs": [dataclasses.asdict(one) for one in self.inputs],
            "actions": dataclasses.asdict(self._actions),
            "hidden_sizes": list(self._settings.hidden_sizes),
            "activation": self._settings.activation,
            "state_dependent_std": self._settings.state_dependent_std,
            "log_std_limits": list(LOG_STD_LIMITS),
        }

    def named_variables(self) -> Mapping[str, tf.Variable]:
        """Return kernel_0, bias_0, … of all layers, and log_std if actions are floats."""
        named = {
            f"{('kernel', 'bias')[number % 2]}_{number // 2}": variable
            for number, variable in enumerate(self._layers)
        }
        return named if self._log_std is None else {**named, "log_std": self._log_std}


class ValueNetwork(_Perceptron):
    """A network from observations to the value of their states.

    It can also estimate the spread, the usual |return - value|.

    Args:
      observation_spec: a nest of specs of numbers.
      hidden_sizes: units of the hidden layers.
      activation: activation of the hidden layers, "tanh" or "relu".
      generator: draws the initial weights.
      has_spread: whether the network has an output for the spread.
    """

    def __init__(
        self,
        observation_spec: Any,
        hidden_sizes: tuple[int, ...],
        activation: str,
        generator: np.random.Generator,
        has_spread: bool = False,
    ) -> None:
        outputs = 2 if has_spread else 1
        super().__init__(observation_spec, hidden_sizes, activation, outputs, generator, "value")

    def call(
        self,
        observation: Any,
        step_type: Any = (),
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        """Return values [B] or [B, T], and no state."""
        return self._outputs(observation)[..., 0], network_state

    def value_and_log_spread(
        self, observation: Any, step_type: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values, and logarithms of the usual |return - value|, each [B] or [B, T]."""
        outputs = self._outputs(observation)
        return outputs[..., 0], outputs[..., 1]


def are_floats(inputs: Sequence[Inputs]) -> bool:
    """Return whether none of the inputs is an integer."""
    return not any(one.is_integer for one in inputs)


def signed_log(values: tf.Tensor) -> tf.Tensor:
    """Return sign(x) log(1 + |x|) of each value x, float32."""
    values = tf.cast(values, tf.float32)
    return tf.sign(values) * tf.math.log1p(tf.abs(values))
