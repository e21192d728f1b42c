"""Latents: an observation as a vector z [L] of numbers about as large as 1.

Observations of numbers are their own latents: the numbers that an actor network would see. Graphs
are encoded by a `GraphEncoder`, whose vector of the graph is brought to mean 0 and variance 1. The
encoder is trained with whatever is computed from the latents.

`policies/numpy_controller.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs

from tfrl_systems.networks import graph_encoder, inputs

_ENCODER = "encoder/"
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
