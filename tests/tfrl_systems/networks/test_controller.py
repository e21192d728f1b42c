"""What a controller sees, by hand: actions as numbers, and a step of its memory."""

from __future__ import annotations

import numpy as np
import pytest
from tf_agents.specs import array_spec, tensor_spec

from tfrl_systems.networks.controller import Memory, State


def make_memory(*bounded, latent_size: int = 1) -> Memory:
    spec = tensor_spec.from_spec(array_spec.BoundedArraySpec(*bounded))
    return Memory(latent_size, spec, 1, np.random.default_rng(0))


def test_actions_enter_as_numbers_from_their_bounds():
    """0 to 4 becomes -1 to 1, and what lies outside is clipped."""
    memory = make_memory((1,), np.float32, 0, 4)
    actions = np.float32([[0], [1], [3], [5]])
    entered = memory.inputs(np.full((4, 1), 7, np.float32), actions)
    np.testing.assert_array_equal(entered, [[7, -1], [7, -0.5], [7, 0.5], [7, 1]])


def test_integer_actions_enter_as_vectors_of_their_values():
    memory = make_memory((), np.int32, 0, 2)
    entered = memory.inputs(np.float32([[7], [8]]), np.int32([2, 0])).numpy()
    (vectors,) = (embedding.numpy() for embedding in memory.embeddings)
    np.testing.assert_array_equal(entered, np.c_[[7, 8], vectors[[2, 0]]])


def test_a_step():
    """Without weights, gates i, f and o of 0 are open by half, and the candidate is tanh(1)."""
    memory = make_memory((1,), np.float32, -1, 1)
    memory.core.b.assign([0, 0, 1, 0])
    memory.core.input_to_hidden.assign(np.zeros((2, 4)))
    memory.core.hidden_to_hidden.assign(np.zeros((1, 4)))
    after = memory(np.float32([[3, 1]]), State(np.float32([[9]]), np.float32([[0.5]])))
    cell = 0.5 * 0.5 + 0.5 * np.tanh(1)
    assert after.cell.numpy() == pytest.approx(cell)
    assert after.hidden.numpy() == pytest.approx(0.5 * np.tanh(cell))
    assert not np.any(memory.empty(3).cell) and memory.empty(3).hidden.shape == (3, 1)
