"""What may be done next, as part of an observation.

  action_mask   bool [n]    which of n integer actions are allowed
  num_places    int32 [R]   for actions (rule, place): how many places each rule has

An observation that has neither allows every action. Graph observations have `location_masks`
instead, whose allowed places are always the first ones. These entries are no inputs of networks;
they limit the distribution of the action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec

from environments.errors import UserError

ACTION_MASK = "action_mask"
NUM_PLACES = "num_places"
NAMES = (ACTION_MASK, NUM_PLACES)

_LOCATION_MASKS = "location_masks"


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
