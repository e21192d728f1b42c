"""A controller in NumPy: latents, a memory of the episode, and an actor that sees both.

The arithmetic is that of `policies/controller_policy.py`, in float32; the results agree up to
rounding. This module does not import TensorFlow.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from environments.errors import UserError
from tfrl_systems.policies import distributions
from tfrl_systems.policies.numpy_graph_encoder import ENCODER, NumpyGraphEncoder, split_batch
from tfrl_systems.policies.numpy_network import Inputs, NumpyNetwork, within

Arrays = Mapping[str, np.ndarray]

_NUM_PLACES = "num_places"


class _Memory(threading.local):
    """What a controller remembers of the episodes at hand; each thread remembers its own.

    Attributes:
      hidden, cell: the state of the LSTM, [B, H], or [1, H] for all rows.
      latents: what it saw last, [B, L].
    """

    hidden: np.ndarray
    cell: np.ndarray
    latents: np.ndarray

    def __reduce__(self) -> Any:
        return type(self), ()


class NumpyController:
    """A controller and its memory of the episodes at hand, one in each row.

    Before the first action of an episode call `begin`, and after each action `remember`. Episodes
    of one thread are no other thread's; for several that are played in turn see `new_episode`.

    Args:
      description: as `ControllerPolicy.describe` returns it.
      arrays: the variables, named as by its `named_variables`.

    Attributes:
      by_chance: whether `draw` makes all allowed actions equally likely, whatever the actor says.

    Raises:
      RuntimeError: of the methods: an episode goes on in a thread that did not begin it.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        self._size = int(description["memory_size"])
        self._permits = str(description["permits"])
        self._actions = dict(description["actions"])
        self._actor_description = dict(description["actor"])
        self._latents = description["latents"]
        self._inputs = Inputs(self._latents["inputs"]) if "inputs" in self._latents else None
        low, high = (np.array(self._actions[name], np.float32) for name in ("low", "high"))
        self._middle, self._half_range = (low + high) / 2, (high - low) / 2
        self.update(arrays)
        self._memory = _Memory()
        self.begin()

    def update(self, arrays: Arrays) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        self._encoder = None
        if self._inputs is None:
            self._encoder = NumpyGraphEncoder(self._latents, within(ENCODER, arrays))
        self._actor_arrays = within("actor/", arrays)
        self._actor = NumpyNetwork(self._actor_description, self._actor_arrays)
        self._lstm = within("memory/", arrays)
        self.by_chance = bool(arrays.get("by_chance", False))

    def new_episode(self) -> NumpyController:
        """Return the same controller with an empty memory of its own; variables are shared."""
        twin = copy.copy(self)
        twin._memory = _Memory()
        twin.begin()
        return twin

    def begin(self, is_first: np.ndarray | None = None) -> None:
        """Forget the episodes of some rows, bool [B]; None for all."""
        if is_first is None or is_first.all():
            self._memory.hidden = self._memory.cell = np.zeros((1, self._size), np.float32)
            return
        memory = self._begun()
        # The rows of new episodes are multiplied by 0.
        factor = np.float32(1) - is_first.astype(np.float32)[:, np.newaxis]
        memory.hidden, memory.cell = factor * memory.hidden, factor * memory.cell

    def parameters(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the parameters of each row's action distribution, as in `distributions`."""
        memory = self._begun()
        memory.latents = self._encode(observation)
        return self._parameters(observation, memory.latents, memory.hidden)

    def parameters_at_start(self, observation: Any) -> dict[str, np.ndarray]:
        """Return what `parameters` would with an empty memory; the memory stays as it is."""
        empty = np.zeros((1, self._size), np.float32)
        return self._parameters(observation, self._encode(observation), empty)

    def _parameters(
        self, observation: Any, latents: np.ndarray, hidden: np.ndarray
    ) -> dict[str, np.ndarray]:
        rows = np.broadcast_to(hidden, (len(latents), self._size))
        seen = {"latent": latents, "hidden": rows}
        if self._permits:
            seen[self._permits] = self._allowed(observation)
        return self._actor.parameters(seen)

    def draw(self, parameters: Mapping[str, np.ndarray], generator: np.random.Generator) -> Any:
        """Draw one action for each row; by chance if `by_chance` is set."""
        if not self.by_chance:
            return distributions.draw(parameters, generator)
        if "loc" in parameters:
            shape = parameters["loc"].shape
            drawn = generator.uniform(-1, 1, shape).astype(np.float32)
            return self._middle + self._half_range * drawn
        return distributions.draw(distributions.uniform(parameters), generator)

    def mode(self, observation: Any) -> np.ndarray:
        """Return the likeliest action of each row."""
        return distributions.mode(self.parameters(observation))

    def remember(self, action: np.ndarray) -> None:
        """Note the action that was taken after the observation that `parameters` saw last."""
        memory = self._begun()
        parts = [memory.latents]
        if self._actions["kind"] == "normal":
            parts.append(np.clip((action - self._middle) / self._half_range, -1, 1))
        else:
            for number, part in enumerate(np.atleast_2d(action.T)):
                parts.append(self._lstm[f"embedding{number}"][part])
        inputs = np.concatenate(parts, axis=1).astype(np.float32)
        sums = inputs @ self._lstm["w_i"] + memory.hidden @ self._lstm["w_h"]
        gates = np.split(sums + self._lstm["b"], 4, axis=1)
        enter, forget, leave = (_logistic(gates[place]) for place in (0, 1, 3))
        memory.cell = forget * memory.cell + enter * np.tanh(gates[2])
        memory.hidden = leave * np.tanh(memory.cell)

    def first_step(self) -> NumpyNetwork:
        """Return the actor as a network of the observation alone, with an empty memory.

        Raises:
          UserError: observations are not single vectors.
        """
        if self._inputs is None or len(self._inputs.sizes) != 1 or self._permits:
            raise UserError("policy: expected one that sees a vector of numbers; name another")
        leaves = self._actor_description["inputs"]
        (latent,) = [leaf for leaf in leaves if list(leaf["path"]) == ["latent"]]
        alone = {**self._actor_description, "inputs": [{**latent, "path": []}]}
        # The inputs are sorted by name: the hidden state, which is 0 at first, then the latent.
        kernel = self._actor_arrays["kernel_0"][self._size :]
        return NumpyNetwork(alone, {**self._actor_arrays, "kernel_0": kernel})

    def _begun(self) -> _Memory:
        """Return the memory of this thread's episodes."""
        if not hasattr(self._memory, "hidden"):
            raise RuntimeError(
                "controller: expected an episode that this thread began, found none; call begin, "
                "or play with new_episode()"
            )
        return self._memory

    def _encode(self, observation: Any) -> np.ndarray:
        if self._inputs is not None:
            return self._inputs(observation).astype(np.float32)
        assert self._encoder is not None
        return np.concatenate([self._encoder.latent(graph) for graph in split_batch(observation)])

    def _allowed(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        if self._permits != _NUM_PLACES:
            return observation[self._permits]
        counts = observation["location_masks"].sum(axis=-1)
        # A model may have more matches of a rule than the policy has numbers.
        return np.minimum(counts, self._actions["num_places"]).astype(np.int32)


def _logistic(values: np.ndarray) -> np.ndarray:
    # tanh does not overflow.
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * values)
