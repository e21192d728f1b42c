"""Gymnasium's spaces for TF-Agents' specs of a flat environment."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from tf_agents.specs import array_spec

from environments.wrappers import Flat, split_mask


def observation_space(environment: Flat) -> spaces.Box:
    """Return the space of the vector that the environment shows, without its mask."""
    spec = environment.observation_spec()
    return _box(split_mask(spec)[0] if environment.is_masked else spec)


def action_space(environment: Flat) -> spaces.Space:
    """Return the space of the environment's actions: numbers, or a box."""
    if environment.num_actions:
        return spaces.Discrete(environment.num_actions)
    return _box(environment.action_spec())


def _box(spec: array_spec.BoundedArraySpec) -> spaces.Box:
    low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
    return spaces.Box(low.astype(spec.dtype), high.astype(spec.dtype), spec.shape, spec.dtype)
