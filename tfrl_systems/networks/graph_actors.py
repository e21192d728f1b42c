"""Actor and value networks for observations of graphs with a list of allowed actions.

    observation [B, …] ─▶ graphs without padding ─▶ encoder ─┬─▶ head ─▶ ListedActions
                                                             └─▶ value [B]

The encoder belongs to the actor. The value network calls it and owns only the variables of its last
layers. So each variable is trained once, and the encoder learns what both networks need.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs
from tf_agents.distributions import utils as distribution_utils
from tf_agents.networks import network
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.networks import graph_encoder, graph_heads
from tfrl_systems.networks.actors import Actor
from tfrl_systems.networks.graph_actions import MASKED, ListedActions

HEADS = (
    graph_heads.PointerHead.kind,
    graph_heads.LocalHead.kind,
    graph_heads.HierarchicalHead.kind,
)

NEEDED = (
    *graphs.ALL_FIELDS,
    "actions",
    "action_mask",
    "action_nodes",
    "action_inputs",
    "action_features",
    "rule_ids",
    "rule_targets",
)
"""The fields of an observation that the networks need."""

# The number of graphs whose values are computed together outside training.
_BLOCK = 64


class Trunk(snt.Module):
    """The encoder of observations, which actor and value network share."""

    def __init__(
        self, observation_spec: Mapping[str, Any], config: Any, generator: np.random.Generator
    ) -> None:
        super().__init__(name="trunk")
        self.encoder = graph_encoder.GraphEncoder(
            graph_encoder.Features.of(observation_spec),
            config.graph_width,
            config.graph_rounds,
            generator,
            has_globals=config.head != graph_heads.LocalHead.kind,
        )
        self._cache: list[tuple[list[tf.Tensor], graphs.GraphsTuple]] | None = None

    def __call__(self, observation: Mapping[str, tf.Tensor]) -> graphs.GraphsTuple:
        """Return B graphs with vectors, for observations [B, …]; [B, T, …] count as [B T, …]."""
        tensors = [observation[name] for name in graphs.ALL_FIELDS]
        for cached_tensors, encoded in self._cache or ():
            if all(map(operator.is_, cached_tensors, tensors)):
                return encoded
        encoded = self.encoder(graph_encoder.graphs_of(flat(observation)))
        if self._cache is not None:
            self._cache.append((tensors, encoded))
        return encoded

    @contextlib.contextmanager
    def once(self) -> Iterator[None]:
        """Encode each observation once within this context; see `actors.Actor.once`."""
        self._cache = []
        try:
            yield
        finally:
            self._cache = None


def flat(observation: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the `NEEDED` fields of observations [B, …] or [B, T, …], with one leading axis."""
    outer_rank = observation["n_node"].shape.rank - 1
    if outer_rank == 1:
        return {name: observation[name] for name in NEEDED}
    return {
        name: tf.reshape(
            observation[name], tf.concat([[-1], tf.shape(observation[name])[outer_rank:]], axis=0)
        )
        for name in NEEDED
    }


class GraphActorNetwork(Actor):
    """Maps graph observations to a distribution over the allowed actions, (xfer_id, location).

    It is made from the arguments of `actors.ActorNetwork`; no action is a float.

    Raises:
      UserError: the action spec is another one.
    """

    def __init__(
        self,
        observation_spec: Mapping[str, Any],
        action_spec: Any,
        config: Any,
        generator: np.random.Generator,
        state_dependent_std: bool = False,
    ) -> None:
        if action_spec.shape != (2,) or action_spec.dtype != tf.int32:
            raise UserError(
                f"action: expected (xfer_id, location), int32 [2], found {action_spec}; observe "
                "something else than graphs, or choose among what is listed"
            )
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name="actor")
        self._config = config
        self.trunk = Trunk(observation_spec, config, generator)
        self.head = graph_heads.make_head(config, observation_spec, action_spec, generator)
        num_listed = observation_spec["action_mask"].shape[0]
        listed = {
            "logits": tf.TensorSpec([num_listed], tf.float32),
            "actions": tf.TensorSpec([num_listed, 2], tf.int32),
        }
        _is_built(
            self,
            distribution_utils.DistributionSpecV2(
                tf.TensorShape([2]), tf.int32, distribution_utils.Params(ListedActions, listed)
            ),
        )

    @staticmethod
    def suits(observation_spec: Any, action_spec: Any) -> bool:
        """Return whether observations are graphs with a list of actions."""
        return isinstance(observation_spec, Mapping) and observation_spec.keys() >= set(NEEDED)

    def make_value(
        self, config: Any, generator: np.random.Generator, has_spread: bool
    ) -> GraphValueNetwork:
        """Make a value network that shares the encoder."""
        return GraphValueNetwork(self, generator, has_spread)

    def call(
        self,
        observation: Mapping[str, tf.Tensor],
        step_type: Any = (),
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[ListedActions, Any]:
        """Return the action's distribution and no state; observations [B, ...] or [B, T, ...]."""
        logits = self.head(self.trunk(observation), flat(observation))
        actions = observation["actions"]
        logits = tf.ensure_shape(tf.reshape(logits, tf.shape(actions)[:-1]), actions.shape[:-1])
        return ListedActions(logits, actions), network_state

    def once(self) -> contextlib.AbstractContextManager[None]:
        """See `actors.Actor.once`."""
        return self.trunk.once()

    def describe(self) -> dict[str, Any]:
        """See `actors.Actor.describe`."""
        return {
            "kind": "graph_actor",
            "actions": {"kind": "listed", "dtype": "int32"},
            "width": self._config.graph_width,
            "rounds": self._config.graph_rounds,
            "head": self._config.head,
            "max_logit": self._config.max_logit,
            "features": dataclasses.asdict(self.trunk.encoder.features),
            "hash_size": graph_heads.HASH_SIZE,
            "norm_epsilon": graph_encoder.NORM_EPSILON,
            "masked": MASKED,
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return the variables by their place, such as "encoder/round0/send/w", "head/score/w"."""
        named = {_place(variable.name): variable for variable in self.trunk.encoder.variables}
        return named | {
            f"head/{_place(variable.name)}": variable for variable in self.head.variables
        }


class GraphValueNetwork(network.Network):
    """Maps graph observations to values, and with `has_spread` to the usual |return - value|.

    It encodes them with the actor's trunk.
    """

    def __init__(
        self, actor: GraphActorNetwork, generator: np.random.Generator, has_spread: bool = False
    ) -> None:
        super().__init__(input_tensor_spec=actor.input_tensor_spec, state_spec=(), name="value")
        trunk, width = actor.trunk, actor.trunk.encoder.width
        # With a function in place of the trunk, the trunk's variables are not this network's too.
        self._encode = lambda observation: trunk(observation)
        self.hidden = graph_encoder.linear(generator, (width, width), "hidden")
        self.out = graph_encoder.linear(generator, (width, 2 if has_spread else 1), "out", 0.01)
        _is_built(self, tf.TensorSpec([], tf.float32))

    def call(
        self,
        observation: Mapping[str, tf.Tensor],
        step_type: Any = (),
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        """Return values [B] or [B, T], and no state; outside training, 0 at boundary steps."""
        return self._outputs(observation, step_type, training)[..., 0], network_state

    def value_and_log_spread(
        self, observation: Mapping[str, tf.Tensor], step_type: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values and logarithms of the usual |return - value|, both shaped as by `call`."""
        outputs = self._outputs(observation, step_type, training)
        return outputs[..., 0], outputs[..., 1]

    def _outputs(
        self, observation: Mapping[str, tf.Tensor], step_type: Any, training: bool
    ) -> tf.Tensor:
        """Return the last layer's sums, [..., outputs]; outside training, 0 at boundary steps."""
        if training:
            sums = self._sums(observation)
        else:
            sums = self._sums_by_blocks(flat(observation), step_type)
        shape = tf.concat([tf.shape(observation["n_node"])[:-1], [self.out.output_size]], axis=0)
        return tf.reshape(sums, shape)

    def _sums(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self.out(tf.nn.relu(self.hidden(self._encode(observation).globals)))

    def _sums_by_blocks(
        self, observations: Mapping[str, tf.Tensor], step_type: tf.Tensor | tuple[()]
    ) -> tf.Tensor:
        """Return what `_sums` returns, in little memory, with 0 at boundary steps."""
        num_steps = tf.shape(observations["n_node"])[0]
        is_decided = tf.fill([num_steps], True)
        if not isinstance(step_type, tuple):
            is_decided = tf.reshape(tf.not_equal(step_type, ts.StepType.LAST), [-1])
        rows = tf.where(is_decided)

        def block(start: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            places = rows[start : start + _BLOCK]
            part = {name: tf.gather(field, places[:, 0]) for name, field in observations.items()}
            return start + _BLOCK, tf.tensor_scatter_nd_update(outputs, places, self._sums(part))

        _, sums = tf.while_loop(
            lambda start, _: start < tf.shape(rows)[0],
            block,
            (0, tf.zeros([num_steps, self.out.output_size])),
            parallel_iterations=1,
        )
        return sums


def _is_built(net: network.Network, output_spec: Any) -> None:
    """Tell TF-Agents the output spec; all variables exist already.

    To find the spec, TF-Agents would call the network with random numbers, which are no graph.
    """
    net.built = True
    net._network_output_spec = output_spec


def _place(name: str) -> str:
    """Return a variable's name within its outermost module."""
    return name.partition("/")[2].removesuffix(":0")
