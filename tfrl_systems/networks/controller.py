"""What a controller sees: latents of observations, and a memory of the episode.

A latent is an observation as a vector z [L] of numbers about as large as 1. Observations of numbers
are their own latents: the numbers that an actor network would see. Graphs are encoded by a
`GraphEncoder`, whose vector of the graph is brought to mean 0 and variance 1. The encoder is
trained with whatever is computed from the latents.

The memory is an LSTM over latents and the actions that were taken:

    h_{t+1}, c_{t+1} = LSTM([z_t, e(a_t)], h_t, c_t),    h_0 = c_0 = 0

The action enters as an embedding of each of its parts: a vector for each value of an integer, and
the numbers of a float action brought to [-1, 1]. The LSTM is Sonnet's, which has the equations of
the thesis (2.2.2). Its text lets the forget gate forget all at 1; by its equation 4 that is 0.

`policies/numpy_controller.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs

from tfrl_systems.networks import graph_encoder, inputs
from tfrl_systems.networks.actors import read_action_spec

_ENCODER = "encoder/"
_EMBEDDING_SIZE = 16
LATENT, HIDDEN = "latent", "hidden"


class VectorLatents(snt.Module):
    """Latents of observations of numbers; `size` is L."""

    def __init__(self, observation_spec: Any) -> None:
        super().__init__(name="latents")
        self.inputs = inputs.read_observation_spec(observation_spec)
        self.size = sum(leaf.size for leaf in self.inputs)

    def __call__(self, observation: Any) -> tf.Tensor:
        """Return latents [N, L] of observations [N, …]."""
        return inputs.joined(observation, self.inputs, 1)[0]

    def select(self, observation: Any) -> Any:
        """Return the part of an observation that latents are made from."""
        if not isinstance(observation, Mapping):
            return observation
        return {name: leaf for name, leaf in observation.items() if name not in inputs.PERMITS}

    def describe(self) -> dict[str, Any]:
        """Return all that a NumPy twin must know beside the variables, as JSON values."""
        return {"inputs": [dataclasses.asdict(leaf) for leaf in self.inputs]}

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return no variables."""
        return {}


class GraphLatents(snt.Module):
    """Latents of graphs; `size`, L, is also the length of the vectors of nodes."""

    def __init__(
        self, observation_spec: Mapping[str, Any], config: Any, generator: np.random.Generator
    ) -> None:
        super().__init__(name="latents")
        self.size, self._num_rounds = config.graph_width, config.graph_rounds
        features = graph_encoder.Features.of(observation_spec)
        self.encoder = graph_encoder.GraphEncoder(
            features, self.size, self._num_rounds, generator, block=config.graph_block
        )

    def __call__(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return latents [N, L] of observations [N, …]."""
        encoded = self.encoder(graph_encoder.graphs_of(observation))
        return graph_encoder.standardised(encoded.globals)

    def select(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of an observation that latents are made from."""
        return {name: observation[name] for name in graphs.ALL_FIELDS}

    def describe(self) -> dict[str, Any]:
        """Return all that a NumPy twin must know beside the variables, as JSON values."""
        return {
            "width": self.size,
            "rounds": self._num_rounds,
            "block": self.encoder.block,
            "features": dataclasses.asdict(self.encoder.features),
            "norm_epsilon": graph_encoder.NORM_EPSILON,
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return the encoder's variables by their place, such as "encoder/round0/send/w"."""
        named = {variable.name.removesuffix(":0"): variable for variable in self.encoder.variables}
        return {name[name.index(_ENCODER) :]: variable for name, variable in named.items()}


def make_latents(
    observation_spec: Any, config: Any, generator: np.random.Generator
) -> VectorLatents | GraphLatents:
    """Make the latents that suit an observation; the last two arguments are for graphs."""
    if isinstance(observation_spec, Mapping) and observation_spec.keys() >= set(graphs.ALL_FIELDS):
        return GraphLatents(observation_spec, config, generator)
    return VectorLatents(observation_spec)


class State(NamedTuple):
    """The state of the LSTM, [B, H] each; other modules see only `hidden`."""

    hidden: tf.Tensor
    cell: tf.Tensor


class Memory(snt.Module):
    """The memory of latents of `latent_size`, L, numbers and of actions.

    Attributes:
      size: H.
      num_inputs: how many numbers enter at each step.
    """

    def __init__(
        self,
        latent_size: int,
        action_spec: Any,
        size: int,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(name="memory")
        self.size = size
        actions = read_action_spec(action_spec)
        # The number of values of each integer part; none for float actions.
        sizes = [] if actions.kind == "normal" else [actions.size]
        sizes += [actions.num_places] if actions.num_places else []
        self.embeddings = [
            tf.Variable(
                generator.normal(size=(count, _EMBEDDING_SIZE)).astype(np.float32),
                name=f"embedding{number}",
            )
            for number, count in enumerate(sizes)
        ]
        low, high = (np.array(bound, np.float32) for bound in (actions.low, actions.high))
        self._middle, self._half_range = (low + high) / 2, (high - low) / 2
        embedded = len(sizes) * _EMBEDDING_SIZE if sizes else actions.size
        self.num_inputs = latent_size + embedded
        self.core = snt.LSTM(
            size, w_i_init=graph_encoder.Drawn(generator), w_h_init=graph_encoder.Drawn(generator)
        )
        self(tf.zeros([1, self.num_inputs]), self.empty(1))

    def empty(self, num_rows: tf.Tensor | int) -> State:
        """Return the memory of episodes that begin, for B rows."""
        return State(*[tf.zeros([num_rows, self.size])] * 2)

    def inputs(self, latents: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Join latents [N, L] and actions [N, …]; return [N, num_inputs]."""
        return tf.concat([latents, *self._embedded(tf.convert_to_tensor(actions))], axis=1)

    def __call__(self, inputs: tf.Tensor, state: State) -> State:
        """Take one more step into the memory; `inputs` as `inputs` returns them."""
        _, following = self.core(inputs, snt.LSTMState(*state))
        return State(*following)

    def _embedded(self, actions: tf.Tensor) -> list[tf.Tensor]:
        if not self.embeddings:
            bounded = (tf.cast(actions, tf.float32) - self._middle) / self._half_range
            return [tf.clip_by_value(bounded, -1.0, 1.0)]
        parts = tf.unstack(actions, axis=1) if actions.shape.rank == 2 else [actions]
        return [tf.gather(*pair) for pair in zip(self.embeddings, parts, strict=True)]

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return the variables by name: w_i, w_h, b, and embedding0 and so on."""
        named = {
            variable.name.rpartition("/")[2].removesuffix(":0"): variable
            for variable in self.core.variables
        }
        return named | {f"embedding{n}": embedding for n, embedding in enumerate(self.embeddings)}


def seen_by_actor(latents: tf.Tensor, hidden: tf.Tensor, permitted: Any, name: str) -> dict:
    """Return what a controller's actor observes, by name.

    Args:
      latents: [..., L].
      hidden: [..., H].
      permitted: what is allowed, as `inputs.Permits.of` returns it.
      name: name of the permits' entry, or "".
    """
    return {LATENT: latents, HIDDEN: hidden, **({name: permitted} if name else {})}


def actor_spec(latent_size: int, hidden_size: int, allowed: inputs.Permits) -> dict[str, Any]:
    """Return the spec of what a controller's actor observes."""
    return {
        LATENT: tf.TensorSpec([latent_size], tf.float32, LATENT),
        HIDDEN: tf.TensorSpec([hidden_size], tf.float32, HIDDEN),
        **allowed.spec(),
    }
