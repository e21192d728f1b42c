"""The flat view of an environment: vectors, numbered actions and masks, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

import environments
from environments import wrappers
from environments.errors import UserError
from environments.testing import EnvironmentContractTest


class Doors(py_environment.PyEnvironment):
    """Two numbers choose a door: its row is 3 or 4, its column 0, 1 or 2."""

    def __init__(self, masked: bool) -> None:
        super().__init__(handle_auto_reset=True)
        self.masked, self.chosen = masked, None

    def action_spec(self):
        return array_spec.BoundedArraySpec((2,), np.int32, (3, 0), (4, 2))

    def observation_spec(self):
        spec = {"money": array_spec.ArraySpec((), np.int64)}
        spec["place"] = array_spec.ArraySpec((2,), np.float32)
        return spec | ({"open": array_spec.ArraySpec((2, 3), np.bool_)} if self.masked else {})

    def _observation(self):
        seen = {"money": np.array(-7), "place": np.array([0.5, 1e30], np.float32)}
        opened = np.array([[True, False, True], [False, False, True]])
        return seen | ({"open": opened} if self.masked else {})

    def _reset(self):
        return ts.restart(self._observation())

    def _step(self, action):
        self.chosen = action
        return ts.termination(self._observation(), reward=1.0)


def test_numbers_are_squashed_and_follow_each_other():
    flat = wrappers.Flat(Doors(masked=False))
    expected = [-math.log(8), math.log(1.5), wrappers.LIMIT]
    np.testing.assert_allclose(flat.reset().observation, expected, rtol=1e-6)
    assert flat.observation_spec().shape == (3,) and not flat.is_masked

    class Ages(Doors):
        """Sees an array alone."""

        def observation_spec(self):
            return array_spec.ArraySpec((2,), np.int64)

        def _observation(self):
            return np.array([3, -1])

    flat = wrappers.Flat(Ages(masked=False))
    np.testing.assert_allclose(flat.reset().observation, [math.log(4), -math.log(2)], rtol=1e-6)


def test_actions_are_numbered_row_by_row():
    doors = Doors(masked=True)
    flat = wrappers.Flat(doors)
    for number, action in ((0, [3, 0]), (2, [3, 2]), (3, [4, 0]), (5, [4, 2])):
        flat.reset()
        assert flat.step(number).is_last()
        assert doors.chosen.tolist() == action and doors.chosen.dtype == np.int32
    for number in (-1, 6):
        flat.reset()
        with pytest.raises(ValueError, match=f"expected 0 to 5, found {number}"):
            flat.step(number)


def test_the_mask_stands_beside_the_vector():
    flat = wrappers.Flat(Doors(masked=True))
    vector, mask = wrappers.split_mask(flat.reset().observation)
    assert vector.shape == (3,) and mask.tolist() == [1, 0, 1, 0, 0, 1]
    spec, mask_spec = wrappers.split_mask(flat.observation_spec())
    assert spec.shape == (3,) and mask_spec.shape == (6,) == (flat.num_actions,)


@pytest.mark.parametrize("name", ["fork", "describe", "views"])
def test_what_an_environment_does_not_have_is_one_line(name):
    with pytest.raises(UserError, match=f"expected an environment with {name}, found Doors"):
        getattr(wrappers.Flat(Doors(masked=True)), name)()


def test_a_point_of_the_box_stays_as_it_is():
    plain, seen = (
        environments.make("learn_to_optimize", function="sphere", dimensions=3, seed=5)
        for _ in range(2)
    )
    flat = wrappers.Flat(seen)
    assert flat.action_spec() == plain.action_spec() and flat.num_actions == 0
    assert np.array_equal(flat.reset().observation, plain.reset().observation)
    action = np.array([0.25, -0.5], np.float32)
    assert flat.step(action).reward == plain.step(action).reward
    batch = wrappers.Flat(environments.make("learn_to_optimize", batch_size=4))
    assert batch.batched and batch.batch_size == 4
    assert batch.reset().observation.shape == (4, 2)


def test_a_graph_is_seen_by_sums_and_counts():
    environment = environments.make("tensor_graphs", models=["bert-tiny"], objective="analytic")
    flat = wrappers.Flat(environment)
    raw = environment.reset().observation
    vector, mask = wrappers.split_mask(flat.reset().observation)
    num_node_features = raw["nodes"].shape[1] - 1
    sums = raw["nodes"][:, 1:].astype(np.float64).sum(axis=0)
    squashed = np.sign(sums) * np.log1p(abs(sums))
    np.testing.assert_allclose(vector[:num_node_features], squashed, rtol=1e-6)
    matches = raw["location_masks"].sum(axis=1)
    np.testing.assert_allclose(vector[-len(matches) :], np.log1p(matches), rtol=1e-6)
    # A number is xfer * max_locations + location.
    xfer, location = np.argwhere(raw["location_masks"])[5]
    number = xfer * raw["location_masks"].shape[1] + location
    assert mask[number] and flat.unflatten(number).tolist() == [xfer, location]


class TestFlatGraphs(EnvironmentContractTest):
    num_episodes = 1

    def make_environment(self, seed):
        settings = {"max_steps": 4, "objective": "analytic", "seed": seed}
        return wrappers.Flat(environments.make("tensor_graphs", models=["bert-tiny"], **settings))


class TestFlatFunctions(EnvironmentContractTest):
    def make_environment(self, seed):
        return wrappers.Flat(environments.make("learn_to_optimize", seed=seed))
