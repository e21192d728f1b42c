"""Actor and value networks for observations of graphs, with or without a list of allowed actions.

    observation [B, …] ─▶ graphs without padding ─▶ encoder ─┬─▶ head ─▶ ListedActions
                                                             └─▶ value [B]

Without the list there are NumberedActions instead.

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
from tfrl_systems.networks import actors, graph_encoder, graph_heads
from tfrl_systems.networks.distributions import MASKED, ListedActions, NumberedActions

_WITHOUT_LIST = (*graphs.ALL_FIELDS, "location_masks", "rule_ids", "rule_targets")
_LIST = ("actions", "action_mask", "action_nodes", "action_inputs", "action_features")
NEEDED = (*graphs.ALL_FIELDS, *_LIST, "rule_ids", "rule_targets")
"""The fields of an observation that the networks need, if it lists the allowed actions."""

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
            has_globals=config.head != graph_heads.LOCAL,
            block=config.graph_block,
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
    """Return the needed fields of observations [B, …] or [B, T, …], with one leading axis."""
    names = NEEDED if is_listed(observation) else _WITHOUT_LIST
    outer_rank = observation["n_node"].shape.rank - 1
    if outer_rank == 1:
        return {name: observation[name] for name in names}
    return {
        name: tf.reshape(
            observation[name], tf.concat([[-1], tf.shape(observation[name])[outer_rank:]], axis=0)
        )
        for name in names
    }


def is_listed(observation: Mapping[str, Any]) -> bool:
    """Return whether observations, or their specs, list the allowed actions."""
    return _LIST[0] in observation


class GraphActorNetwork(actors.Actor):
    """Maps graph observations to a distribution over actions (xfer_id, location).

    If observations list the allowed actions, those are all; if not, every pair of numbers is one,
    and the head must be "hierarchical". It is made from the arguments of `actors.ActorNetwork`; no
    action is a float.

    Raises:
      UserError: the action spec or the head is another one.
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
        most = np.broadcast_to(action_spec.maximum, (2,)).tolist()
        self._num_rules, self._num_places = most[0] + 1, most[1] + 1
        self.trunk = Trunk(observation_spec, config, generator)
        self._is_listed = is_listed(observation_spec)
        if not self._is_listed and config.head != graph_heads.HIERARCHICAL:
            raise UserError(
                "head: expected hierarchical, because without masks no matches are listed that "
                f"another head could score; found {config.head!r}"
            )
        self.head = graph_heads.make_head(config, observation_spec, action_spec, generator)
        _is_built(self, self._distribution_spec(observation_spec))

    def _distribution_spec(self, observation_spec: Mapping[str, Any]) -> Any:
        """Return the spec of what `call` returns."""
        kind: type[ListedActions] | type[NumberedActions]
        if self._is_listed:
            (num_listed,) = observation_spec["action_mask"].shape
            kind, sizes = ListedActions, {"logits": [num_listed], "actions": [num_listed, 2]}
        else:
            rules = [self._num_rules]
            places = [*rules, self._num_places]
            kind = NumberedActions
            sizes = {"rule_logits": rules, "place_logits": places, "num_places": rules}
        parameters = {
            name: tf.TensorSpec(size, tf.float32 if name.endswith("logits") else tf.int32)
            for name, size in sizes.items()
        }
        return distribution_utils.DistributionSpecV2(
            tf.TensorShape([2]), tf.int32, distribution_utils.Params(kind, parameters)
        )

    @staticmethod
    def suits(observation_spec: Any, action_spec: Any) -> bool:
        """Return whether observations are graphs with rules that may be applied to them."""
        if not isinstance(observation_spec, Mapping):
            return False
        return any(observation_spec.keys() >= set(names) for names in (NEEDED, _WITHOUT_LIST))

    def make_value(
        self,
        config: Any,
        generator: np.random.Generator,
        has_spread: bool,
        two_policies: bool = False,
    ) -> GraphValueNetwork:
        """Make a value network that shares the encoder."""
        num_rules = self._num_rules if two_policies else 0
        return GraphValueNetwork(self, generator, has_spread, num_rules)

    def call(
        self,
        observation: Mapping[str, tf.Tensor],
        step_type: Any = (),
        network_state: Any = (),
        training: bool = False,
    ) -> tuple[ListedActions | NumberedActions, Any]:
        """Return the action's distribution and no state; observations [B, ...] or [B, T, ...]."""
        if not self._is_listed:
            num_places = tf.reduce_sum(tf.cast(observation["location_masks"], tf.int32), axis=-1)
            outer = tf.shape(num_places)[:-1]
            rules, places = (
                tf.reshape(logits, tf.concat([outer, logits.shape[1:]], axis=0))
                for logits in self.head.numbered(self.trunk(observation))
            )
            rules = tf.ensure_shape(rules, num_places.shape)
            places = tf.ensure_shape(places, observation["location_masks"].shape)
            distribution = NumberedActions(
                rule_logits=rules, place_logits=places, num_places=num_places
            )
            return distribution, network_state
        logits = self.head(self.trunk(observation), flat(observation))
        actions = observation["actions"]
        logits = tf.ensure_shape(tf.reshape(logits, tf.shape(actions)[:-1]), actions.shape[:-1])
        return ListedActions(logits=logits, actions=actions), network_state

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
            "block": self._config.graph_block,
            "head": self._config.head,
            "max_logit": self._config.max_logit,
            "features": dataclasses.asdict(self.trunk.encoder.features),
            "hash_size": graph_heads.HASH_SIZE,
            "norm_epsilon": graph_encoder.NORM_EPSILON,
            "masked": MASKED,
            # Of each rule, for actors that choose among all numbers; 0 for those that see a list.
            "num_places": 0 if self._is_listed else self._num_places,
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return the variables by their place, such as "encoder/round0/send/w", "head/score/w"."""
        named = {_place(variable.name): variable for variable in self.trunk.encoder.variables}
        return named | {
            f"head/{_place(variable.name)}": variable for variable in self.head.variables
        }


class GraphValueNetwork(network.Network):
    """Maps graph observations to values, and with `has_spread` to the usual |return - value|.

    It encodes them with the actor's trunk. For `num_rules` above 0 there is a second value function
    of the observation and the rule that was chosen there, which `of_locations` returns.
    """

    def __init__(
        self,
        actor: GraphActorNetwork,
        generator: np.random.Generator,
        has_spread: bool = False,
        num_rules: int = 0,
    ) -> None:
        super().__init__(input_tensor_spec=actor.input_tensor_spec, state_spec=(), name="value")
        trunk, width = actor.trunk, actor.trunk.encoder.width
        # With a function in place of the trunk, the trunk's variables are not this network's too.
        self._encode = lambda observation: trunk(observation)
        self.hidden = graph_encoder.linear(generator, (width, width), "hidden")
        self._has_spread, size = has_spread, 2 if has_spread else 1
        self.out = graph_encoder.linear(generator, (width, size), "out", 0.01)
        self._num_outputs = size * (1 + num_rules)
        if num_rules:
            # Its layers are its own, like those of the first one.
            self.rule_hidden = graph_encoder.linear(generator, (width, width), "rule_hidden")
            sizes = (width, size * num_rules)
            self.rule_out = graph_encoder.linear(generator, sizes, "rule_out", 0.01)
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
        """Return values and logarithms of the usual |return - value|, both shaped as by `call`.

        Without spreads, the second is 0.
        """
        outputs = self._outputs(observation, step_type, training)
        return actors.value_and_spread_of(outputs, self._has_spread)

    def of_locations(
        self,
        observation: Mapping[str, tf.Tensor],
        rules: tf.Tensor,
        step_type: Any = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the same, where `rules` int32 [B] or [B, T] were chosen."""
        size = self.out.output_size
        outputs = self._outputs(observation, step_type, training)[..., size:]
        shape = tf.concat([tf.shape(rules), [-1, size]], axis=0)
        own = tf.gather(tf.reshape(outputs, shape), rules, batch_dims=rules.shape.rank)
        return actors.value_and_spread_of(own, self._has_spread)

    def _outputs(
        self, observation: Mapping[str, tf.Tensor], step_type: Any, training: bool
    ) -> tf.Tensor:
        """Return the last layers' sums, [..., outputs]; outside training, 0 at boundary steps."""
        if training:
            sums = self._sums(observation)
        else:
            sums = self._sums_by_blocks(flat(observation), step_type)
        shape = tf.concat([tf.shape(observation["n_node"])[:-1], [self._num_outputs]], axis=0)
        return tf.reshape(sums, shape)

    def _sums(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        encoded = self._encode(observation).globals
        sums = self.out(tf.nn.relu(self.hidden(encoded)))
        if self._num_outputs == self.out.output_size:
            return sums
        of_rules = self.rule_out(tf.nn.relu(self.rule_hidden(encoded)))
        return tf.concat([sums, of_rules], axis=1)

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
            (0, tf.zeros([num_steps, self._num_outputs])),
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
