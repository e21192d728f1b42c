"""Any environment with one vector to see and one number to choose, for stock agents.

Stock networks of TF-Agents, Stable-Baselines3 and others take a vector, and choose among numbered
actions or a vector of a box. `Flat` shows an environment so, from its specs alone::

    environment = wrappers.Flat(environments.make("tensor_graphs", models=["bert-tiny"]))

Where some actions are not always allowed, the observation has a mask beside the vector, and
`split_mask` is the `observation_and_action_constraint_splitter` that TF-Agents' agents and its
`MaskSplitterNetwork` ask for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError

LIMIT = 32.0
"""Numbers of a flat observation are between -LIMIT and LIMIT: lg(1 + |v|) of what is squashed."""


def split_mask(observation: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the vector and the mask of an observation of `Flat`, or their specs."""
    return observation["observation"], observation["mask"]


class Flat(py_environment.PyEnvironment):
    """An environment whose observations are vectors, and whose discrete actions are numbers.

    Observation: a vector, float32 [n]. If an array of numbers in [-1, 1] is all there is to see, it
      is that array. Else each number v of the observation is squashed to sign(v) ln(1 + |v|), at
      most `LIMIT`, and all arrays follow each other, in the order of the spec. Of a graph
      (`graph_observation`) these are seen: sums over its nodes of each feature but the kind, the
      features of the whole graph, and how many actions of each kind are allowed.

      If the environment masks its actions, the observation is a dict instead: `observation`, the
      vector, and `mask`, int32 [m], 1 for allowed actions.

    Action: a number of m for actions of whole numbers, in the order of `numpy.unravel_index`; for
      actions (xfer, location) of tensor graphs this is xfer * max_locations + location. Actions of
      a box stay as they are.

    Rewards, ends and `get_info` stay as they are. So do batches, where observations are arrays.
    Closing this one closes the environment.
    """

    def __init__(self, environment: py_environment.PyEnvironment) -> None:
        super().__init__()
        self.environment = environment
        self._seen = seen = environment.observation_spec()
        # The spec of each array, in a fixed order; an array alone has no name.
        self._specs = dict(seen) if isinstance(seen, Mapping) else {"": seen}
        self._own_action = action = environment.action_spec()
        self._is_discrete = np.issubdtype(action.dtype, np.integer)
        self._least = np.broadcast_to(action.minimum, action.shape)
        self._sizes = tuple(
            (np.broadcast_to(action.maximum, action.shape) - self._least + 1).ravel().tolist()
        )
        self._mask_name = self._find_mask() if self._is_discrete else None
        self._is_unit_box = _is_unit_box(self._seen)
        self._is_graph = isinstance(self._seen, Mapping) and "n_node" in self._seen

    @property
    def batched(self) -> bool:
        """Return whether the environment is batched."""
        return self.environment.batched

    @property
    def batch_size(self) -> int | None:
        """Return the environment's batch size."""
        return self.environment.batch_size

    @property
    def num_actions(self) -> int:
        """m, the number of actions; 0 if they are vectors of a box."""
        return int(np.prod(self._sizes)) if self._is_discrete else 0

    @property
    def is_masked(self) -> bool:
        """Whether observations have a mask."""
        return self._mask_name is not None

    @property
    def has_episode(self) -> bool:
        """Whether an episode has begun."""
        return self._current_time_step is not None

    def observation_spec(self) -> Any:
        """Return the spec of the vector, or of the vector and the mask."""
        if self._is_unit_box:
            return self._seen
        empty = {name: np.zeros(spec.shape, spec.dtype) for name, spec in self._specs.items()}
        size = len(self._vector(empty))
        vector = array_spec.BoundedArraySpec((size,), np.float32, -LIMIT, LIMIT, "observation")
        if not self.is_masked:
            return vector
        mask = array_spec.BoundedArraySpec((self.num_actions,), np.int32, 0, 1, "mask")
        return {"observation": vector, "mask": mask}

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """Return the spec of the number, or of the vector of a box."""
        if not self._is_discrete:
            return self.environment.action_spec()
        return array_spec.BoundedArraySpec((), np.int64, 0, self.num_actions - 1, "action")

    def get_info(self) -> Any:
        """Return the environment's information."""
        return self.environment.get_info()

    def seed(self, seed: int) -> Any:
        """Seed the environment."""
        self._current_time_step = None
        return self.environment.seed(seed)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    def fork(self) -> Flat:
        """Return a copy in the middle of the same episode, if the environment can be forked."""
        twin = copy.copy(self)
        twin.environment = self._method("fork")()
        return twin

    def reset_at(self, context: Any) -> ts.TimeStep:
        """Start an episode at a context, if the environment can."""
        time_step = self._method("reset_at")(context)
        self._current_time_step = self._flat(time_step)
        return self._current_time_step

    def describe(self) -> str:
        """Return the last decision in words, if the environment tells it."""
        return self._method("describe")()

    def views(self) -> Mapping[str, Any]:
        """Return what else can be seen of the episode, by name, if the environment shows it."""
        return self._method("views")()

    def _method(self, name: str) -> Callable[..., Any]:
        """Return a method of the environment that not all environments have.

        Raises:
          UserError: it does not have it.
        """
        method = getattr(self.environment, name, None)
        if method is None:
            environment = type(self.environment).__name__
            raise UserError(f"{name}: expected an environment with {name}, found {environment}")
        return method

    def _reset(self) -> ts.TimeStep:
        return self._flat(self.environment.reset())

    def _step(self, action: Any) -> ts.TimeStep:
        return self._flat(self.environment.step(self.unflatten(action)))

    def unflatten(self, action: Any) -> Any:
        """Return the environment's own action for one of this environment's.

        Raises:
          ValueError: there is no action of that number.
        """
        if not self._is_discrete:
            return action
        number = int(action)
        if not 0 <= number < self.num_actions:
            raise ValueError(
                f"action: expected 0 to {self.num_actions - 1}, found {number}; give one of them"
            )
        spec = self._own_action
        offsets = np.array(np.unravel_index(number, self._sizes or (1,)), spec.dtype)
        return (self._least + offsets.reshape(spec.shape)).astype(spec.dtype)

    def _flat(self, time_step: ts.TimeStep) -> ts.TimeStep:
        if self._is_unit_box:
            return time_step
        observation = time_step.observation
        arrays = observation if isinstance(observation, Mapping) else {"": observation}
        vector = self._vector(arrays)
        if self._mask_name is None:
            return time_step._replace(observation=vector)
        mask = arrays[self._mask_name].ravel().astype(np.int32)
        return time_step._replace(observation={"observation": vector, "mask": mask})

    def _vector(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        if self._is_graph:
            # Row 0 of the global features is the graph's, row 1 is padding's.
            parts = [arrays["nodes"][:, 1:].sum(axis=0), arrays["globals"][0]]
            if self._mask_name is not None:
                masks = arrays[self._mask_name]
                parts.append(masks.reshape(len(masks), -1).sum(axis=1))
        else:
            names = (name for name in self._specs if name != self._mask_name)
            parts = [np.asarray(arrays[name]).ravel() for name in names]
        values = np.concatenate([part.astype(np.float64) for part in parts])
        squashed = np.sign(values) * np.log1p(np.abs(values))
        return np.clip(squashed, -LIMIT, LIMIT).astype(np.float32)

    def _find_mask(self) -> str | None:
        """Return the name of the array that says of each action whether it is allowed."""
        for name, spec in self._specs.items():
            if name and spec.dtype == np.bool_ and spec.shape == self._sizes:
                return name
        return None


def _is_unit_box(spec: Any) -> bool:
    """Return whether a spec is that of numbers in [-1, 1]."""
    return (
        isinstance(spec, array_spec.BoundedArraySpec)
        and np.issubdtype(spec.dtype, np.floating)
        and bool(np.all(spec.minimum >= -1) and np.all(spec.maximum <= 1))
    )
