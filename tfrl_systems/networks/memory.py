"""A memory of an episode: an LSTM over latents and the actions that were taken.

    h_{t+1}, c_{t+1} = LSTM([z_t, e(a_t)], h_t, c_t),    h_0 = c_0 = 0

The action enters as an embedding of each of its parts: a vector for each value of an integer, and
the numbers of a float action brought to [-1, 1]. The LSTM is Sonnet's, which has the equations of
the thesis (2.2.2). Its text lets the forget gate forget all at 1; by its equation 4 that is 0.

`policies/numpy_controller.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tfrl_systems.networks.actors import read_action_spec
from tfrl_systems.networks.graph_encoder import Drawn

_EMBEDDING_SIZE = 16


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
        self.core = snt.LSTM(size, w_i_init=Drawn(generator), w_h_init=Drawn(generator))
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
