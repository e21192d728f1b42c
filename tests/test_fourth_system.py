"""The examples of CONTRIBUTING.md work as printed: a system, an agent and a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import environments
from environments.testing import EnvironmentContractTest
from tests import house_rules
from tests.checkout import ROOT, copy_sources

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# What else a reader adds: behind which words of which file, and what; of the system it is printed.
ADDED = (
    ("environments/__init__.py", "ENVIRONMENTS: dict[str, tuple[str, str]] = {\n", None),
    ("tfrl_systems/agents/table.py", '"bc_max", "surrogate"', ', "a2c"'),
    ("tfrl_systems/agents/policy_gradients.py", "import actors, adam, graph_actors", ", slots"),
    (
        "tfrl_systems/agents/policy_gradients.py",
        "[type[actors.Actor], ...] = (",
        "slots.SlotsNetwork, ",
    ),
    (
        "tfrl_systems/policies/numpy_actor.py",
        "from tfrl_systems.policies.numpy_network import NumpyNetwork\n",
        "from tfrl_systems.policies.numpy_slots import NumpySlots\n",
    ),
    (
        "tfrl_systems/policies/numpy_actor.py",
        "NETWORKS: Mapping[str, type] = {",
        '"slots": NumpySlots, ',
    ),
    ("tfrl_systems/policies/policy_files.py", "KINDS = (", '"slots", '),
)
TIMEOUT_S = 300
pytestmark = pytest.mark.ci


def blocks(chapter):
    """The Python of a chapter of CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return BLOCK.findall(page.split(f"## {chapter}")[1].split("\n## ")[0])


@pytest.fixture(scope="module")
def example():
    """The files of the example by path, and the line for the table."""
    files, lines = {}, []
    for block in blocks("Adding a fourth system"):
        first, rest = block.split("\n", 1)
        if first.startswith("# "):
            files[first.removeprefix("# ")] = rest
        else:
            lines.append(block)
    (line,) = lines
    return files, line


@pytest.fixture(scope="module")
def others():
    """The files of an agent and of a network, by path."""
    chapters = ("Adding an agent", "Adding a network")
    files = [block.split("\n", 1) for chapter in chapters for block in blocks(chapter)]
    return {path.removeprefix("# "): text for path, text in files}


@pytest.fixture(scope="module")
def checkout(example, others, tmp_path_factory):
    """A copy of both packages with the examples in it, as a reader would have added them."""
    files, line = example
    directory = copy_sources(tmp_path_factory.mktemp("checkout"))
    for path, text in {**files, **others}.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for path, place, addition in ADDED:
        text = (directory / path).read_text(encoding="utf-8")
        assert text.count(place) == 1
        text = text.replace(place, place + (addition or line))
        (directory / path).write_text(text, encoding="utf-8")
    system = directory / "environments" / "caching"
    (system / "__init__.py").write_text('"""Caching."""\n', encoding="utf-8")
    return directory


def run(checkout, *command):
    return subprocess.run(
        [sys.executable, *command],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


# Runs commands one after another, and prints what each came to: TensorFlow is imported once.
IN_ONE_PROCESS = """
import contextlib, io, json, pathlib, sys
import pytest
from tf_agents.policies import policy_saver
from tfrl_systems.cli.main import main

# Nobody reads the SavedModel here.
policy_saver.PolicySaver.__init__ = lambda self, policy: None
policy_saver.PolicySaver.save = lambda self, directory: pathlib.Path(directory).mkdir()
for program, *words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            status = {"tfrl": main, "pytest": pytest.main}[program](words)
        except SystemExit as end:
            status = end.code
    print(json.dumps([int(status), out.getvalue()]))
"""
TESTS = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "tests")
# With as many epochs, the agent of one's own is PPO.
LEARN = (
    *("tfrl", "train", "caching", "--agent", "a2c", "--workdir", "learned"),
    *("--iterations", "20", "--set", "evaluate_every=20", "--set", "num_epochs=10"),
)
SMALL = ("iterations=3", "episodes_per_chunk=4", "memory_size=16", "head_size=16", "num_members=1")
FEW = ("num_dreams=32", "dream_updates=4", "fit_updates=8", "evaluate_every=3")
DREAM = (
    *("tfrl", "train", "caching", "--agent", "world_model", "--workdir", "dreamed"),
    *(word for setting in (*SMALL, *FEW) for word in ("--set", setting)),
)
HELP = ("tfrl", "train", "caching", "--agent", "a2c", "--help")
COMPARE = (
    *("tfrl", "evaluate", "caching", "--json"),
    *("--policy", "learned/policy", "--policy", "dreamed/policy", "--policy", "random"),
)


@pytest.fixture(scope="module")
def outcomes(checkout):
    """Status and output of its tests, of two trainings, of the comparison, and of a help text."""
    commands = (TESTS, LEARN, DREAM, COMPARE, HELP)
    done = run(checkout, "-c", IN_ONE_PROCESS, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_its_contract_and_its_episode_by_hand_pass(outcomes):
    status, said = outcomes[0]
    contract = [name for name in dir(EnvironmentContractTest) if name.startswith("test_")]
    by_hand, of_the_network = 2, 1
    assert status == 0, said
    assert f"{len(contract) + by_hand + of_the_network} passed" in said


def test_it_is_learned_and_compared_with_chance(checkout, outcomes):
    """An agent of one's own, and a world model that dreams: both know the specs alone."""
    for (status, said), agent in zip(outcomes[1:3], ("a2c", "world_model"), strict=True):
        assert status == 0, said
        workdir = "learned" if agent == "a2c" else "dreamed"
        result = json.loads((checkout / workdir / "result.json").read_text())
        assert (result["environment"], result["agent"]) == ("caching", agent)
    assert result["world_model"]["prediction"]["done_accuracy"] > 0.8
    policy = json.loads((checkout / "learned" / "policy" / "policy.json").read_text())
    assert policy["kind"] == "slots", "the network of one's own"
    status, said = outcomes[3]
    assert status == 0, said
    learned, dreamed, chance = json.loads(said.splitlines()[-1])["policies"]
    assert learned["requests"] == dreamed["requests"] == chance["requests"] == 30
    assert learned["misses"] < 0.95 * chance["misses"]
    assert 0 < dreamed["misses"] <= 30
    status, said = outcomes[4]
    assert status == 0, said
    assert "  num_epochs=1  how many times" in said


def test_its_tests_can_fail(example, monkeypatch):
    """Its own test by hand, on an environment that counts hits twice."""
    files, _ = example
    broken = files["environments/caching/environment.py"].replace("hits += 1\n", "hits += 2\n")
    assert broken != files["environments/caching/environment.py"]
    environment, by_hand = {"__name__": "caching"}, {}
    exec(broken, environment)
    exec(files["tests/environments/caching/test_environment.py"], by_hand)
    monkeypatch.setattr(
        environments, "make", lambda _, **settings: environment["CachingEnvironment"](**settings)
    )
    with pytest.raises(AssertionError):
        by_hand["test_one_trace_by_hand"]()


def test_they_follow_the_rules_of_the_house(example, others, checkout):
    files, _ = example
    assert (len(files), len(others)) == (3, 4)
    files = files | others
    for path, text in files.items():
        source = house_rules.Source(path, text)
        assert not [str(violation) for rule in house_rules.RULES for violation in rule(source)]
    for command in (["ruff", "check", "--no-cache"], ["ruff", "format", "--no-cache", "--check"]):
        done = run(checkout, "-m", *command, *files)
        assert done.returncode == 0, done.stdout + done.stderr
