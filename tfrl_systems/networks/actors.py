"""Actor and value networks of policy gradient agents, made from specs.

Observations: a nest of arrays of numbers; `inputs` says how they enter.

Actions: a bounded float32 vector has a normal distribution, whose mean tanh keeps within the
bounds. An integer scalar 0 … n-1 has a categorical distribution. A pair (rule, place) has the
distribution `NumberedActions`. What an observation does not allow has the probability 0
(`inputs.Permits`).

    observation [B, ...] ─▶ inputs [B, F] ─▶ hidden layers ─▶ outputs ─▶ distribution, or value [B]

The caller passes the generator that draws the initial weights, so two networks from the same seed
are equal, whatever TensorFlow drew before. The variables have fixed names, so nothing depends on
how many networks a process made earlier. `policies/numpy_network.py` does the same arithmetic in
NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.utils import nest_utils

from environments.errors import UserError
from tfrl_systems.networks import inputs
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.distributions import MASKED, MAX_PLACE_LOGIT, NumberedActions

ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}

LOG_STD_LIMITS = (-9.0, 1.0)
"""Limits of log standard deviations: 0.0001 to 2.7 times half the range of the action."""

# The first outputs are small, so the first policy is nearly constant and the first values near 0.
_OUTPUT_GAIN = 0.01

# If inputs are floats, in boxes or normalised, random biases spread the bends of the first layer's
# units over [-1, 1]. With biases of 0 all bends would pass through the origin, and the network
# would be slow to learn anything far from it.
_FLOAT_GAIN = 2.0


@dataclasses.dataclass(frozen=True)
class Actions:
    """The kind, size and bounds of the action.

    Attributes:
      kind: "normal" for a bounded float32 vector, "categorical" for an integer scalar, "numbered"
        for a pair (rule, place).
      size: how many numbers a float action has, or how many integer actions or rules there are.
      low: least values of a float action; empty for integers.
      high: greatest values of a float action; empty for integers.
      dtype: name of the action's dtype.
      num_places: the most places of a rule, for pairs.
    """

    kind: str
    size: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str
    num_places: int = 0


def read_action_spec(action_spec: Any) -> Actions:
    """Return the kind, size and bounds of an action spec.

    Raises:
      UserError: it is of no kind that the module's docstring lists.
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
        if dtype == tf.int32 and shape == [2] and np.all(low == 0) and high[0] > 0:
            return Actions("numbered", int(high[0]) + 1, (), (), dtype.name, int(high[1]) + 1)
    raise UserError(
        "action: expected a bounded float32 vector, an integer scalar from 0 on, or a pair "
        f"(rule, place); found {action_spec}"
    )


class Actor(network.Network):
    """A network from observations [B, …] or [B, T, …] to distributions over actions.

    `call` returns the distribution and the network's state, which is (). A kind of network has a
    twin of the same arithmetic in NumPy, in `policies.numpy_actor.NETWORKS`. Each is made from the
    arguments of `ActorNetwork`.
    """

    @property
    def can_be_normalized(self) -> bool:
        """Return whether PPO may normalise observations."""
        return False

    @staticmethod
    def suits(observation_spec: Any, action_spec: Any) -> bool:
        """Return whether the network is for these tensor specs."""
        raise NotImplementedError

    def make_value(
        self,
        config: Any,
        generator: np.random.Generator,
        has_spread: bool,
        two_policies: bool = False,
    ) -> network.Network:
        """Make a value network for the same observations; see `ValueNetwork`.

        Raises:
          UserError: there are to be two policies, but actions are no pairs.
        """
        if two_policies:
            raise UserError(
                "two_policies: expected graphs with pairs (rule, location) as actions, found other "
                "observations; set it to false"
            )
        return ValueNetwork(self.input_tensor_spec, config, generator, has_spread)

    def describe(self) -> dict[str, Any]:
        """Return all that the twin must know beside the variables, as JSON values.

        Its "kind" names the twin, and "actions" holds the "dtype" of actions.
        """
        raise NotImplementedError

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return the variables by the names that the twin knows them by."""
        raise NotImplementedError

    def set_std(self, share: float) -> None:
        """Set the standard deviation of float actions, as a share of half their range."""

    def set_even_share(self, share: float) -> None:
        """Set the share of actions that are drawn from all components of a mixture alike."""

    def once(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which what actor and value network share is computed once.

        Within it the variables must not change, and all calls must be in the same graph function.
        """
        return contextlib.nullcontext()


class Perceptron(network.Network):
    """A perceptron over the joined inputs: hidden layers, then a linear layer."""

    def __init__(
        self,
        observation_spec: Any,
        config: Any,
        num_outputs: int,
        generator: np.random.Generator,
        name: str,
    ) -> None:
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name=name)
        self.inputs = inputs.read_observation_spec(observation_spec)
        hidden_sizes, activation = config.hidden_sizes, config.activation
        self._activation = ACTIVATIONS[activation]
        sizes = [sum(leaf.size for leaf in self.inputs), *hidden_sizes, num_outputs]
        # One list of kernel, bias, kernel, …, because Keras keeps its order in `variables`.
        self._layers = []
        for number, pair in enumerate(zip(sizes, sizes[1:], strict=False)):
            is_last = number == len(hidden_sizes)
            gain = _OUTPUT_GAIN if is_last else 1.0 if activation == "tanh" else math.sqrt(2.0)
            bias = np.zeros(pair[1])
            if number == 0 and not is_last and inputs.are_floats(self.inputs):
                gain *= _FLOAT_GAIN
                bias = generator.uniform(-gain, gain, pair[1])
            kernel = generator.normal(scale=gain / math.sqrt(pair[0]), size=pair)
            part = f"{name}/output" if is_last else f"{name}/hidden{number}"
            self._layers += [
                tf.Variable(kernel.astype(np.float32), name=f"{part}/kernel"),
                tf.Variable(bias.astype(np.float32), name=f"{part}/bias"),
            ]

    def named_layers(self) -> dict[str, tf.Variable]:
        """Return kernel_0, bias_0, … of all layers."""
        return {
            f"{('kernel', 'bias')[number % 2]}_{number // 2}": variable
            for number, variable in enumerate(self._layers)
        }

    def call(
        self, observation: Any, step_type: Any = (), network_state: Any = (), training: bool = False
    ) -> tuple[Any, Any]:
        """Return the last layer's sums, float32 [..., num_outputs], and no state."""
        outer_rank = nest_utils.get_outer_rank(observation, self.input_tensor_spec)
        hidden, outer_shape = inputs.joined(observation, self.inputs, outer_rank)
        *kernels, last_kernel = self._layers[0::2]
        *biases, last_bias = self._layers[1::2]
        for kernel, bias in zip(kernels, biases, strict=True):
            hidden = self._activation(tf.nn.bias_add(tf.matmul(hidden, kernel), bias))
        outputs = tf.nn.bias_add(tf.matmul(hidden, last_kernel), last_bias)
        shape = tf.concat([outer_shape, [outputs.shape[-1]]], axis=0)
        return tf.reshape(outputs, shape), network_state


class ActorNetwork(Perceptron, Actor):
    """A perceptron from observations to a distribution over actions.

    Args:
      observation_spec: a nest of numbers.
      action_spec: one of the kinds of the module's docstring.
      config: settings of networks (`agents.policy_gradients.NetworkConfig`).
      generator: draws the initial weights.
      state_dependent_std: whether the standard deviation depends on the observation. It then lies
        between the one that is set and e times that.

    Raises:
      UserError: a spec is of another kind.
    """

    @staticmethod
    def suits(observation_spec: Any, action_spec: Any) -> bool:
        """Return True: what no other network is for is for this one, which says what it lacks."""
        return True

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        config: Any,
        generator: np.random.Generator,
        state_dependent_std: bool = False,
    ) -> None:
        actions = read_action_spec(action_spec)
        self._permits = inputs.Permits.read(observation_spec, action_spec)
        if (actions.kind == "numbered") != (self._permits.name == inputs.NUM_PLACES):
            raise UserError(
                f"observation: expected {inputs.NUM_PLACES} beside pairs (rule, place), and "
                f"nowhere else; found the action {action_spec}"
            )
        is_normal = actions.kind == "normal"
        super().__init__(
            observation_spec,
            config,
            actions.size * (2 if is_normal and state_dependent_std else 1) + actions.num_places,
            generator,
            "actor",
        )
        self._actions = actions
        self._config = config
        self._state_dependent_std = state_dependent_std
        self._log_std = None
        if is_normal:
            low, high = np.array(actions.low, np.float32), np.array(actions.high, np.float32)
            self._middle, self._half_range = (low + high) / 2, (high - low) / 2
            self._log_std = tf.Variable(tf.zeros(low.shape), trainable=False, name="actor/log_std")
            self._set_log_std_fn = ArrayFunction(self._log_std.assign)

    def call(
        self, observation: Any, step_type: Any = (), network_state: Any = (), training: bool = False
    ) -> tuple[tfp.distributions.Distribution, Any]:
        """Return the action's distribution and no state; observations [B, ...] or [B, T, ...]."""
        outputs, _ = super().call(observation)
        if self._actions.num_places:
            return NumberedActions.of(outputs, self._permits.of(observation)), network_state
        if self._log_std is None:
            if self._permits.name:
                outputs = tf.where(self._permits.of(observation), outputs, MASKED)
            distribution = tfp.distributions.Categorical(
                logits=outputs, dtype=tf.as_dtype(self._actions.dtype)
            )
            return distribution, network_state
        log_std = self._log_std
        if self._state_dependent_std:
            outputs, log_std_change = tf.split(outputs, 2, axis=-1)
            log_std = log_std + (1 + tf.tanh(log_std_change)) / 2
        std = tf.exp(tf.clip_by_value(log_std, *LOG_STD_LIMITS)) * self._half_range
        mean = self._middle + self._half_range * tf.tanh(outputs)
        distribution = tfp.distributions.MultivariateNormalDiag(
            loc=mean, scale_diag=tf.broadcast_to(std, tf.shape(mean))
        )
        return distribution, network_state

    def set_std(self, share: float) -> None:
        """See `Actor.set_std`."""
        if self._log_std is not None:
            self._set_log_std_fn(np.full(self._log_std.shape, math.log(share), np.float32))

    def set_first_actions(self, shares: np.ndarray) -> None:
        """Set the float actions [n] of the untrained policy, as shares of half their range."""
        bias = np.zeros(self._layers[-1].shape, np.float32)
        bias[: self._actions.size] = np.arctanh(shares)
        self._layers[-1].assign(bias)

    @property
    def can_be_normalized(self) -> bool:
        """Return whether no observation is an integer."""
        return inputs.are_floats(self.inputs)

    def describe(self) -> dict[str, Any]:
        """See `Actor.describe`."""
        return {
            "kind": "actor",
            "inputs": [dataclasses.asdict(leaf) for leaf in self.inputs],
            "actions": dataclasses.asdict(self._actions),
            "hidden_sizes": list(self._config.hidden_sizes),
            "activation": self._config.activation,
            "state_dependent_std": self._state_dependent_std,
            "log_std_limits": list(LOG_STD_LIMITS),
            "permits": self._permits.name,
            "masked": MASKED,
            "max_place_logit": MAX_PLACE_LOGIT,
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return kernel_0, bias_0, … of all layers, and log_std if actions are floats."""
        named = self.named_layers()
        return named if self._log_std is None else {**named, "log_std": self._log_std}


class ValueNetwork(Perceptron):
    """A network from observations to values, and to |return - value| with `has_spread`."""

    def __init__(
        self,
        observation_spec: Any,
        config: Any,
        generator: np.random.Generator,
        has_spread: bool = False,
    ) -> None:
        super().__init__(observation_spec, config, 2 if has_spread else 1, generator, "value")
        self._has_spread = has_spread

    def call(
        self, observation: Any, step_type: Any = (), network_state: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, Any]:
        """Return values [B] or [B, T], and no state."""
        return self.value_and_log_spread(observation)[0], network_state

    def value_and_log_spread(
        self, observation: Any, step_type: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values, and logarithms of the usual |return - value|, each [B] or [B, T].

        Without spreads, the second is 0.
        """
        outputs, _ = super().call(observation)
        return value_and_spread_of(outputs, self._has_spread)


def value_and_spread_of(outputs: tf.Tensor, has_spread: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Split a value network's outputs [..., 1 or 2]; without spreads, the second is 0."""
    values = outputs[..., 0]
    return values, outputs[..., 1] if has_spread else tf.zeros_like(values)
