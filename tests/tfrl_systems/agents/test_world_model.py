"""The agent that learns in dreams: on a chain that is known exactly."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from tests.tfrl_systems.world_models import chain
from tfrl_systems.agents.world_model import Config, make_agent
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.networks.controller import State
from tfrl_systems.policies import export, variables
from tfrl_systems.policies.numpy_actor import NumpyActor, load_network
from tfrl_systems.world_models.dream import Imagined

SMALL = {
    "num_members": 2,
    "memory_size": 32,
    "head_size": 32,
    "hidden_sizes": (16,),
    "num_dreams": 64,
    "dream_updates": 3,
    "fit_updates": 10,
}
LEARNING = {
    **SMALL,
    "learning_rate": 1e-2,
    "final_learning_rate": 1e-2,
    "gamma": 0.95,
    "num_epochs": 5,
    "random_share": 1.0,
    "temperature": 0.1,
    "dream_steps": 6,
    "fit_updates": 200,
    "fit_episodes": 16,
    "fit_learning_rate": 5e-3,
    "dream_updates": 15,
    "num_dreams": 128,
}


def make(environment=None, **settings):
    environment = environment or chain.Chain()
    specs = tensor_spec.from_spec((environment.time_step_spec(), environment.action_spec()))
    return make_agent(Config(**settings), *specs)


def actor_of(agent) -> NumpyActor:
    actor = NumpyActor.from_policy(agent.collect_policy)
    actor.load(variables.to_bytes(agent.collect_policy.variables(), 0))
    return actor


@pytest.fixture(scope="module")
def learned():
    """An agent that saw 100 short random episodes and nothing else."""
    agent = make(**LEARNING)
    agent.train(chain.played_by_chance(100, seed=0, max_steps=24))
    return agent


def best_return(network) -> float:
    environment, total = chain.Chain(first=0), 0.0
    network.begin()
    now = environment.reset()
    for _ in range(30):
        seen = tree.map_structure(lambda a: np.asarray(a)[np.newaxis], now.observation)
        action = network.mode(seen)
        network.remember(action)
        now = environment.step(action[0])
        total += float(now.reward)
        if now.is_last():
            return total
    return -np.inf


@pytest.mark.ci
def test_a_controller_that_only_dreamed_solves_the_chain(learned):
    assert best_return(actor_of(learned).network) == chain.BEST_RETURN


@pytest.mark.ci
def test_it_is_the_same_in_numpy_and_tensorflow(learned, tmp_path):
    """Actions and memories along an episode: TF-Agents' policy, the saved one, and NumPy's."""
    export.save_policy(tmp_path / "policy", learned.policy, {"environment": "chain"})
    network = load_network(tmp_path / "policy")
    saved = tf.saved_model.load(str(tmp_path / "policy"))
    state = learned.policy.get_initial_state(1)
    saved_state = saved.get_initial_state(1)
    environment = chain.Chain(first=2)
    now = environment.reset()
    while not now.is_last():
        batch = tree.map_structure(lambda a: tf.constant(np.asarray(a)[np.newaxis]), now)
        logits = learned.policy.distribution(batch, state).action.logits
        acted, again = learned.policy.action(batch, state), saved.action(batch, saved_state)
        parameters = network.parameters(tree.map_structure(lambda a: a.numpy(), batch.observation))
        # The logits depend on the memory, so it is the same too.
        np.testing.assert_allclose(parameters["logits"], logits, atol=1e-5)
        action = parameters["logits"].argmax(axis=1)
        network.remember(action)
        assert acted.action.numpy() == again.action.numpy() == action
        state, saved_state = acted.state, again.state
        np.testing.assert_allclose(state["hidden"], saved_state["hidden"], atol=1e-5)
        now = environment.step(action[0])


@pytest.mark.ci
def test_its_distributions_are_those_of_tensorflow(learned):
    """With memories of their own in each row; an episode that begins has an empty one."""
    learned.set_progress(1.0)  # which ends the time of random actions
    actor, generator = actor_of(learned), np.random.default_rng(0)
    state = learned.collect_policy.get_initial_state(4)
    for number in range(4):
        states = generator.integers(chain.NUM_STATES, size=4)
        step_type = np.full(4, ts.StepType.MID if number else ts.StepType.FIRST, np.int32)
        step_type[number % 4] = ts.StepType.FIRST
        seen = {
            "state": np.eye(chain.NUM_STATES, dtype=np.float32)[states],
            "action_mask": np.array([chain.allowed(state) for state in states]),
        }
        now = ts.TimeStep(step_type, *np.zeros((2, 4), np.float32), seen)
        acted = actor.act(now, generator)
        is_first = tf.constant(step_type == ts.StepType.FIRST)[:, tf.newaxis]
        state = {name: tf.where(is_first, 0.0, memory) for name, memory in state.items()}
        reference = learned.policy.distribution(tree.map_structure(tf.constant, now), state)
        logits = acted.info["dist_params"]["logits"]
        allowed = seen["action_mask"]
        np.testing.assert_allclose(logits[allowed], reference.action.logits[allowed], atol=1e-4)
        assert allowed[np.arange(4), acted.action].all()
        memory = learned.model.members[0].memory
        latents = learned.model.latents({"state": seen["state"]})
        state = memory(memory.inputs(latents, acted.action), State(**state))._asdict()


def test_by_chance_all_allowed_actions_are_equally_likely():
    agent = make(**SMALL, random_share=0.5)
    actor = actor_of(agent)
    seen = {
        "state": np.eye(5, dtype=np.float32)[[2] * 4000],
        "action_mask": np.array([chain.allowed(2)] * 4000),
    }
    now = ts.TimeStep(np.zeros(4000, np.int32), *np.zeros((2, 4000), np.float32), seen)
    drawn = actor.act(now, np.random.default_rng(0)).action
    assert np.mean(drawn == chain.LEFT) == pytest.approx(0.5, abs=0.05)
    assert not np.any(drawn == chain.JUMP)
    agent.set_progress(0.5)
    assert not agent.collect_policy.parts.by_chance.numpy()


@pytest.mark.ci
def test_real_experience_is_mixed_in_and_dreams_never_ask_for_more(learned, monkeypatch):
    agent = make(**{**SMALL, "num_members": 1}, random_share=0.0, real_share=0.25)
    real = EpisodeRunner([chain.Chain()], actor_of(agent), 8).run(Chunk(0, 0)).trajectory

    def fail(*_):
        raise AssertionError("the real environment was asked")

    for name in ("_step", "_reset"):
        monkeypatch.setattr(chain.Chain, name, fail)
    assert np.isfinite(agent.train(real).loss)
    report = agent.report()
    # 3 updates from dreams of 5 steps; a quarter of the 64 rows was real.
    assert report["dream_steps"] == 3 * 48 * 5 and report["prediction"] is None
    agent.train(real)
    real_return = agent.report()["prediction"]["real_return"]
    assert real_return == pytest.approx(real.reward.sum() / 8, rel=1e-5)
    # What was played by chance is not mixed in.
    settings = ("dream_updates", "num_dreams", "dream_steps")
    assert learned.report()["dream_steps"] == np.prod([LEARNING[name] for name in settings])


@pytest.mark.parametrize("cut_off", [False, True])
def test_what_follows_a_dream_that_is_cut_off_counts(cut_off):
    """The last reward of such a dream holds γ V; at a real end nothing follows."""
    agent = make(**SMALL, gamma=0.9)
    seen = {
        "latent": tf.zeros([1, 2, 5]),
        "hidden": tf.zeros([1, 2, 32]),
        "action_mask": tf.ones([1, 2, 3], tf.bool),
    }
    final = {name: column[:, 0] for name, column in seen.items()}
    agent.controller.value_network.variables[-1].assign([7.0])
    imagined = Imagined(
        seen,
        tf.zeros([1, 2], tf.int32),
        {"logits": tf.zeros([1, 2, 3])},
        tf.constant([[1.0, 2.0]]),
        tf.constant([[False, not cut_off]]),
        tf.constant([[True, True]]),
        final,
    )
    steps = agent.sleeper.experience(imagined)
    value = agent.controller.value_network(final)[0].numpy().item()
    assert value != 0
    expected = 2 + (0.9 * value if cut_off else 0)
    np.testing.assert_allclose(steps.reward, [[1, expected]], rtol=1e-6)
    assert steps.discount.numpy().tolist() == [[1, 0]]
    assert steps.next_step_type.numpy().tolist() == [[ts.StepType.MID, ts.StepType.LAST]]
