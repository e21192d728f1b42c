"""The systems as environments of Gymnasium: its checker, contexts, forks, words and names."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import psutil
import pytest

import environments
from environments.errors import UserError
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls, write_corpus

gymnasium = pytest.importorskip("gymnasium", reason="pip install -e '.[gymnasium]'")
NAMES = ("tfrl/Inlining-v0", "tfrl/TensorGraphs-v0", "tfrl/LearnToOptimize-v0")


@pytest.fixture
def make(lend):
    """Makes environments of small problems, and closes them."""
    corpus = lend(
        "gymnasium-corpus",
        lambda path: write_corpus(path, {"p/hand.cc": HAND_WORKED, "p/many.cc": many_calls(3)}),
    )
    problems = {
        NAMES[0]: {"corpus": corpus},
        NAMES[1]: {"max_steps": 5},
        NAMES[2]: {"dimensions": 3, "episode_length": 4},
    }
    opened = []

    def make_environment(name, **settings):
        module_and_name = f"environments.gymnasium:{name}"
        opened.append(gymnasium.make(module_and_name, **problems[name], **settings))
        return opened[-1]

    yield make_environment
    for environment in opened:
        environment.close()


def act(environment, generator):
    """Take a random action that is allowed, and return what `step` does."""
    masks = environment.unwrapped.action_masks()
    if not len(masks):
        shape = environment.action_space.shape
        return environment.step(generator.uniform(-1, 1, shape).astype(np.float32))
    return environment.step(int(generator.choice(np.flatnonzero(masks))))


def finish(environment, action):
    """Take the same action until the episode ends, and return the last information."""
    is_over = False
    while not is_over:
        *_, is_over, _, info = environment.step(action)
    return info


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_checks_it_without_a_warning(make, name):
    from gymnasium.utils.env_checker import check_env

    environment = make(name, render_mode="ansi").unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(environment)


@pytest.mark.parametrize(
    "name, context",
    [(NAMES[0], "p/many.cc"), (NAMES[1], "bert-tiny"), (NAMES[2], (0.25, -0.5, 0.75))],
)
def test_an_episode_begins_where_it_is_told_to(make, name, context):
    environment = make(name)
    environment.reset(seed=0, options={"context": context})
    begun = environment.unwrapped.observation["context"]["name"]
    assert begun == (context if isinstance(context, str) else "0.25 -0.5 0.75")


@pytest.mark.parametrize(
    "name, option, value, words",
    [
        (NAMES[0], "context", "p/amny.cc", "found 'p/amny.cc'; similar: p/many.cc"),
        (NAMES[1], "context", "no-such-model", "no-such-model"),
        (NAMES[2], "context", (0.25, 3.0, 0.5), "expected 3 numbers from -1 to 1"),
        (NAMES[2], "context", "a b c", "expected 3 numbers from -1 to 1"),
        (NAMES[2], "module", "a", "expected 'context', found module"),
    ],
)
def test_a_wrong_option_is_one_line(make, name, option, value, words):
    with pytest.raises(UserError, match=words):
        make(name).reset(options={option: value})


def test_rewards_go_by_name(make):
    modules = {}
    for reward in ("object", "code"):
        environment = make(NAMES[0], reward=reward)
        environment.reset(seed=0, options={"context": "p/hand.cc"})
        modules[reward] = finish(environment, 1)
    # All is inlined both times; what counts is the text column once, and code alone otherwise.
    whole, code = modules["object"], modules["code"]
    assert whole["size_bytes"] == code["size_bytes"]
    assert whole["cost_bytes"] == whole["size_bytes"]
    assert code["cost_bytes"] == code["exec_bytes"] < code["size_bytes"]
    with pytest.raises(UserError, match="found 'small'"):
        make(NAMES[0], reward="small")


def test_sizes_calls_and_instructions_are_seen_by_name(make):
    environment = make(NAMES[0])
    environment.reset(seed=0, options={"context": "p/hand.cc"})
    seen = environment.unwrapped.observation
    assert seen["site"] == ("caller", "leaf") and seen["sections"] == {}
    assert seen["calls"]["caller"] == ["leaf", "once"]
    assert seen["instructions"] == {"leaf": 5, "once": 2, "caller": 4, "other": 3}
    info = finish(environment, 0)
    assert environment.unwrapped.observation["sections"][".text"] == info["exec_bytes"]
    with pytest.raises(UserError, match="found 'ir'"):
        environment.unwrapped.observation["ir"]


def test_the_last_decision_in_words(make):
    inlining = make(NAMES[0], render_mode="ansi")
    inlining.reset(seed=0, options={"context": "p/hand.cc"})
    inlining.step(1)
    expected = "p/hand.cc, call site 1: leaf in caller: inlined, unlike LLVM by itself"
    assert inlining.render() == expected
    graphs = make(NAMES[1], render_mode="ansi")
    graphs.reset(seed=0)
    location = int(np.flatnonzero(graphs.unwrapped.action_masks())[0])
    graphs.step(location)
    rule = graphs.unwrapped.system_environment.episode.trail[0].rule
    assert graphs.render().startswith(f"bert-tiny, step 1, {rule}, match 0: ")
    function = make(NAMES[2], render_mode="ansi")
    function.reset(seed=0, options={"context": (0.25, -0.5, 0.75)})
    assert function.render() == "x = (0.25, -0.5) at c = (0.75)"


def test_forks_leave_nothing_open(make):
    environment = make(NAMES[0])
    environment.reset(seed=0, options={"context": "p/hand.cc"})
    environment.step(1)

    def num_open():
        process = psutil.Process()
        return process.num_fds(), len(process.children(recursive=True))

    with environment.unwrapped.fork() as fork:
        fork.step(0)
    before = num_open()
    for _ in range(100):
        with environment.unwrapped.fork() as fork:
            pass
    for _ in range(5):
        with environment.unwrapped.fork() as fork:
            finish(fork, 0)
    assert num_open() == before
    environment.step(0)


def test_names_are_found_as_the_docstring_says():
    code = (
        "import gymnasium, environments.gymnasium\n"
        "names = [n for n in gymnasium.registry if n.startswith('tfrl/')]\n"
        "assert sorted(names) == sorted(environments.gymnasium.NAMES), names\n"
        "import sys; assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_are_the_batched_environment_s():
    settings = {"function": "sphere", "dimensions": 3, "episode_length": 2, "reward": "scaled"}
    vector = gymnasium.make_vec(f"environments.gymnasium:{NAMES[2]}", num_envs=4, **settings)
    batched = environments.make("learn_to_optimize", batch_size=4, seed=5, **settings)
    assert vector.observation_space.shape == (4, 3) and vector.action_space.shape == (4, 2)
    observations, infos = vector.reset(seed=5)
    assert np.array_equal(observations, batched.reset().observation) and infos == {}
    actions = np.full((4, 2), 0.5, np.float32)
    for number in range(5):
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        time_step = batched.step(actions)
        assert np.array_equal(observations, time_step.observation)
        assert np.array_equal(rewards, time_step.reward) and not truncated.any()
        # Two steps and the start of the next episodes: every third step begins anew.
        assert terminated.tolist() == [number % 3 == 1] * 4
        if terminated.all():
            assert np.array_equal(infos["cost"], batched.get_info()["cost"])
            assert infos["_cost"].all()
    vector.close()
