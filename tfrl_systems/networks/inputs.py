"""How observations of numbers enter networks.

An observation is a nest of arrays. Floats enter unchanged; integers (counts, costs, flags) enter as
their signed logarithm, sign(x) log(1 + |x|). All leaves are flattened and joined in the order of
`tf.nest.flatten`, which sorts the names of a dict. Networks do not see what is allowed (`permits`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.utils import nest_utils

from environments.errors import UserError
from tfrl_systems.networks import permits

_PERMITS = [(name,) for name in permits.NAMES]


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


def read_observation_spec(observation_spec: Any) -> tuple[Inputs, ...]:
    """Return the leaves of a nest of tensor specs, in the order in which they are joined.

    Raises:
      UserError: a leaf does not hold numbers.
    """
    leaves = []
    for path, spec in nest_utils.flatten_with_tuple_paths(observation_spec):
        if path in _PERMITS:
            continue
        if not (spec.dtype.is_floating or spec.dtype.is_integer):
            raise UserError(
                f"observation {'/'.join(map(str, path))}: expected numbers, found {spec.dtype.name}"
            )
        size = int(np.prod(spec.shape.as_list(), dtype=np.int64))
        leaves.append(Inputs(tuple(map(str, path)), size, spec.dtype.is_integer))
    return tuple(leaves)


def joined(
    observation: Any, inputs: Sequence[Inputs], outer_rank: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Join the leaves of observations, and return float32 [N, F] and the shape of the outer axes.

    Args:
      observation: a nest with `outer_rank` leading axes, which become the one axis N.
      inputs: its leaves, as `read_observation_spec` returns them.
      outer_rank: number of leading axes.
    """
    paths = nest_utils.flatten_with_tuple_paths(observation)
    tensors = [tensor for path, tensor in paths if path not in _PERMITS]
    columns = []
    for tensor, leaf in zip(tensors, inputs, strict=True):
        values = tf.cast(tensor, tf.float32)
        if leaf.is_integer:
            values = tf.sign(values) * tf.math.log1p(tf.abs(values))
        columns.append(tf.reshape(values, [-1, leaf.size]))
    rows = tf.concat(columns, axis=1) if len(columns) > 1 else columns[0]
    return rows, tf.shape(tensors[0])[:outer_rank]


def are_floats(inputs: Sequence[Inputs]) -> bool:
    """Return whether none of the inputs is an integer."""
    return not any(leaf.is_integer for leaf in inputs)
