"""Networks in NumPy, shared by threads: each gets the answers to its own questions."""

from __future__ import annotations

import copy
import functools
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from tests.tfrl_systems import actor_problems, graph_problems
from tests.tfrl_systems.graph_problems import RULES, random_observation
from tfrl_systems.agents import policy_gradients, world_model
from tfrl_systems.agents.policy_gradients import Config
from tfrl_systems.networks import graph_actors
from tfrl_systems.policies.numpy_controller import NumpyController
from tfrl_systems.policies.numpy_graph import NumpyGraphNetwork
from tfrl_systems.policies.numpy_network import NumpyNetwork
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

NUM_THREADS = 8


@pytest.fixture(autouse=True)
def impatient_threads():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def count_wrong(answer_fns, questions, num_answers) -> int:
    """Answers that differ from those of a single thread, when each thread asks one question."""
    expected = [np.copy(fn(question)) for fn, question in zip(answer_fns, questions, strict=True)]
    assert len({answer.tobytes() for answer in expected}) > 1
    barrier = threading.Barrier(NUM_THREADS)

    def ask(number):
        barrier.wait()
        fn, question, right = answer_fns[number], questions[number], expected[number]
        return sum(not np.array_equal(fn(question), right) for _ in range(num_answers))

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        return sum(threads.map(ask, range(NUM_THREADS)))


def make_optimizer() -> OptimizerPolicy:
    """From two numbers to three."""
    actor = policy_gradients.make_actor(
        Config(hidden_sizes=(16,)), *actor_problems.float_specs(5, 3)
    )
    arrays = {name: variable.numpy() for name, variable in actor.named_variables().items()}
    return OptimizerPolicy(NumpyNetwork(actor.describe(), arrays), 3)


def make_controller() -> NumpyController:
    """It sees two numbers and remembers two."""
    config = world_model.Config(memory_size=2, hidden_sizes=(16,), random_share=0.0)
    policy = world_model.make_agent(config, *actor_problems.float_specs(2, 1)).collect_policy
    generator = np.random.default_rng(1)
    arrays = {
        name: generator.normal(size=variable.shape).astype(np.float32)
        for name, variable in policy.named_variables().items()
    }
    return NumpyController(policy.describe(), {**arrays, "by_chance": np.array(False)})


@pytest.mark.parametrize("sizes", [[1] * NUM_THREADS, [1, 2, 2, 3, 4, 5, 7, 7]])
def test_learned_optimisers(sizes):
    """Also with more sizes of batches than buffers are kept for."""
    policy = make_optimizer()
    generator = np.random.default_rng(3)
    questions = [generator.uniform(-1, 1, (size, 2)) for size in sizes]
    assert count_wrong([policy] * NUM_THREADS, questions, 1500) == 0


@pytest.mark.parametrize("head", ["pointer", "hierarchical"])
def test_policies_of_graphs(head):
    config = Config(graph_width=8, graph_rounds=2, head=head, max_logit=4.0)
    specs = tensor_spec.from_spec(graph_problems.specs())
    most = [len(RULES), graph_problems.SIZES.max_locations - 1]
    action = tensor_spec.BoundedTensorSpec([2], tf.int32, 0, most)
    actor = graph_actors.GraphActorNetwork(specs, action, config, np.random.default_rng(0))
    arrays = {name: variable.numpy() for name, variable in actor.named_variables().items()}
    policy = GraphPolicy(NumpyGraphNetwork(actor.describe(), arrays))
    generator = np.random.default_rng(5)
    questions = [
        random_observation(generator, size, graph_problems.SIZES, RULES) for size in range(3, 11)
    ]
    draw = [lambda seen: policy.draw_all(seen, 0)] * NUM_THREADS
    assert count_wrong(draw, questions, 15) == 0


def play(player, observations):
    """The actions of an episode, with what the next ones depend on."""
    actions = []
    for observation in observations:
        actions.append(player.mode(observation[np.newaxis]))
        player.remember(actions[-1])
    return np.concatenate(actions)


def test_a_memory_is_of_one_episode():
    controller = make_controller()
    episodes = np.random.default_rng(6).uniform(-1, 1, (NUM_THREADS, 5, 2)).astype(np.float32)

    def begin_and_play(observations):
        controller.begin()
        return play(controller, observations)

    def play_anew(observations):
        return play(controller.new_episode(), observations)

    # Threads that share it, and threads with an episode each.
    for answer in (begin_and_play, play_anew):
        assert count_wrong([answer] * NUM_THREADS, episodes, 25) == 0
    # Two that are played in turn by one thread.
    expected = [play_anew(observations) for observations in episodes[:2]]
    in_turn = [[], []]
    players = [controller.new_episode() for _ in range(2)]
    for step, number in itertools.product(range(5), range(2)):
        in_turn[number].append(play(players[number], episodes[number, step : step + 1]))
    np.testing.assert_array_equal([np.concatenate(actions) for actions in in_turn], expected)


def test_no_thread_goes_on_with_an_episode_of_another():
    controller = make_controller()
    observation = np.zeros((1, 2), np.float32)
    controller.remember(controller.mode(observation))
    copied = copy.deepcopy(controller)
    with ThreadPoolExecutor(1) as threads:
        for stranger in (controller, copied):
            for call in (
                functools.partial(stranger.mode, observation),
                functools.partial(stranger.remember, np.zeros((1, 1))),
                functools.partial(stranger.begin, np.array([False])),
            ):
                with pytest.raises(RuntimeError, match="expected an episode that this thread beg"):
                    threads.submit(call).result()
        first = threads.submit(controller.parameters_at_start, observation).result()
    np.testing.assert_array_equal(
        first["loc"], controller.new_episode().parameters(observation)["loc"]
    )
