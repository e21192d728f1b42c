from __future__ import annotations

import pathlib

import numpy as np
import pytest
from tf_agents.specs import tensor_spec

from tests.tfrl_systems.world_models import chain
from tfrl_systems.agents.world_model import Config
from tfrl_systems.world_models.fitting import Fitter, Replay, Sequences
from tfrl_systems.world_models.mdn_rnn import WorldModel


def make_model(num_members: int = 1, **sizes: int) -> WorldModel:
    environment = chain.Chain()
    config = Config(num_members=num_members, **{"memory_size": 32, "head_size": 64, **sizes})
    specs = tensor_spec.from_spec((environment.observation_spec(), environment.action_spec()))
    return WorldModel(*specs, config, np.random.default_rng(0))


@pytest.fixture(scope="session")
def fitted(lend) -> WorldModel:
    """A model of the chain, fitted to 100 short random episodes; do not change it."""
    model = make_model()

    def fit(directory: pathlib.Path) -> None:
        replay = Replay(model)
        replay.add(chain.played_by_chance(100, seed=0, max_steps=14))
        Fitter(model, 4e-3).fit(replay, 1250, 16, np.random.default_rng(0))
        directory.mkdir()
        np.savez(directory / "variables.npz", *(variable.numpy() for variable in model.variables))

    with np.load(lend("model of the chain", fit) / "variables.npz") as arrays:
        for variable, array in zip(model.variables, arrays.values(), strict=True):
            variable.assign(array)
    return model


@pytest.fixture(scope="session")
def unseen(fitted: WorldModel) -> Sequences:
    """100 more random episodes, of any length."""
    return Replay(fitted).add(chain.played_by_chance(100, seed=1))
