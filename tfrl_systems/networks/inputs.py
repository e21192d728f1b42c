"""How observations enter networks, and what they say may be done next.

An observation of numbers is a nest of arrays. Floats enter unchanged; integers (counts, costs,
flags) enter as their signed logarithm, sign(x) log(1 + |x|). All leaves are flattened and joined in
the order of `tf.nest.flatten`, which sorts the names of a dict.

Some entries are no inputs of networks; they limit the distribution of the action (`Permits`):

  action_mask   bool [n]    which of n integer actions are allowed
  num_places    int32 [R]   for actions (rule, place): how many places each rule has

An observation that has neither allows every action. Graph observations have `location_masks`
instead, whose allowed places are always the first ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.utils import nest_utils

from environments.errors import UserError

ACTION_MASK, NUM_PLACES = PERMITS = ("action_mask", "num_places")

_PERMIT_PATHS = [(name,) for name in PERMITS]
_LOCATION_MASKS = "location_masks"


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
        if path in _PERMIT_PATHS:
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
    tensors = [tensor for path, tensor in paths if path not in _PERMIT_PATHS]
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


@dataclasses.dataclass(frozen=True)
class Permits:
    """How an environment says what may be done.

    Attributes:
      name: name of the entry; "" if every action is always allowed.
      size: n or R; 0 if there is no entry.
      most: the largest value of an entry: 1, or S places.
    """

    name: str = ""
    size: int = 0
    most: int = 0

    @classmethod
    def read(cls, observation_spec: Any, action_spec: Any) -> Permits:
        """Read the specs of an environment.

        Raises:
          UserError: the mask does not fit the action.
        """
        if not isinstance(observation_spec, Mapping):
            return cls()
        if _LOCATION_MASKS in observation_spec:
            num_rules, num_places = observation_spec[_LOCATION_MASKS].shape
            return cls(NUM_PLACES, int(num_rules), int(num_places))
        if NUM_PLACES in observation_spec:
            spec = observation_spec[NUM_PLACES]
            return cls(NUM_PLACES, int(spec.shape[0]), int(np.max(spec.maximum)))
        if ACTION_MASK in observation_spec:
            num_actions = int(action_spec.maximum) + 1 if action_spec.shape == () else 0
            shape = tuple(observation_spec[ACTION_MASK].shape)
            if shape != (num_actions,):
                raise UserError(
                    f"observation {ACTION_MASK}: expected one entry for each integer action, "
                    f"{[num_actions]}, found {list(shape)}"
                )
            return cls(ACTION_MASK, num_actions, 1)
        return cls()

    def of(self, observation: Any) -> Any:
        """Return what observations [..., …] allow: bool [..., n], int32 [..., R], or None."""
        if not self.name:
            return None
        if _LOCATION_MASKS in observation:
            return tf.reduce_sum(tf.cast(observation[_LOCATION_MASKS], tf.int32), axis=-1)
        return observation[self.name]

    def spec(self) -> dict[str, Any]:
        """Return the entry's spec by its name; empty if there is no entry."""
        if not self.name:
            return {}
        if self.name == ACTION_MASK:
            return {self.name: tf.TensorSpec([self.size], tf.bool, self.name)}
        return {
            self.name: tensor_spec.BoundedTensorSpec([self.size], tf.int32, 0, self.most, self.name)
        }
