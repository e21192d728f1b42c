"""The example of CONTRIBUTING.md works as it is printed: environment, record and test."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from environments.testing import EnvironmentContractTest
from tests import house_rules

ROOT = pathlib.Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
TABLE = "ENVIRONMENTS: dict[str, tuple[str, str]] = {\n"
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def example():
    """The files of the example by path, and the line for the table."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    chapter = page.split("## Adding a fourth system")[1].split("\n## ")[0]
    files, lines = {}, []
    for block in BLOCK.findall(chapter):
        first, rest = block.split("\n", 1)
        if first.startswith("# "):
            files[first.removeprefix("# ")] = rest
        else:
            lines.append(block)
    (line,) = lines
    return files, line


@pytest.fixture
def checkout(example, tmp_path):
    """A copy of both packages with the example in it, as a reader would have added it."""
    files, line = example
    caches = shutil.ignore_patterns("__pycache__")
    for package in ("environments", "tfrl_systems"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=caches)
    for path, text in files.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    table = tmp_path / "environments" / "__init__.py"
    text = table.read_text(encoding="utf-8")
    assert text.count(TABLE) == 1
    table.write_text(text.replace(TABLE, TABLE + line), encoding="utf-8")
    system = tmp_path / "environments" / "caching"
    (system / "__init__.py").write_text('"""Caching."""\n', encoding="utf-8")
    return tmp_path


def run(checkout, *command):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def run_its_tests(checkout):
    return run(checkout, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "tests")


def test_its_contract_and_its_episode_by_hand_pass(checkout):
    done = run_its_tests(checkout)
    contract = [name for name in dir(EnvironmentContractTest) if name.startswith("test_")]
    by_hand = 2
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(contract) + by_hand} passed" in done.stdout


def test_it_learns_and_is_compared_with_chance(checkout):
    tfrl = ("tfrl_systems.cli.main",)
    learned = run(
        checkout,
        *(*tfrl, "train", "caching", "--agent", "ppo", "--workdir", "learned", "--json"),
        *("--iterations", "40", "--set", "evaluate_every=40"),
    )
    assert learned.returncode == 0, learned.stderr
    result = json.loads(learned.stdout)
    assert (result["environment"], result["agent"]) == ("caching", "ppo")
    compared = run(
        checkout,
        *(*tfrl, "evaluate", "caching", "--json"),
        *("--policy", "learned/policy", "--policy", "random"),
    )
    assert compared.returncode == 0, compared.stderr
    policy, chance = json.loads(compared.stdout)["policies"]
    assert policy["requests"] == chance["requests"] == 30
    assert policy["misses"] < 0.95 * chance["misses"]


def test_a_world_model_dreams_of_it(checkout):
    """Without an edit: observations and actions are known by their specs."""
    tfrl = ("tfrl_systems.cli.main",)
    small = ("iterations=3", "episodes_per_chunk=4", "memory_size=16", "head_size=16")
    few = ("num_dreams=32", "dream_updates=4", "fit_updates=8", "evaluate_every=3")
    learned = run(
        checkout,
        *(*tfrl, "train", "caching", "--agent", "world_model", "--workdir", "learned", "--json"),
        *(word for one in (*small, *few) for word in ("--set", one)),
    )
    assert learned.returncode == 0, learned.stderr
    assert json.loads(learned.stdout)["world_model"]["prediction"]["done_accuracy"] > 0.8
    compared = run(checkout, *tfrl, "evaluate", "caching", "--policy", "learned/policy", "--json")
    assert compared.returncode == 0, compared.stderr
    (policy,) = json.loads(compared.stdout)["policies"]
    assert policy["requests"] == 30 and 0 < policy["misses"] <= 30


def test_its_tests_can_fail(checkout):
    path = checkout / "environments" / "caching" / "environment.py"
    text = path.read_text(encoding="utf-8")
    broken = text.replace("hits += 1\n", "hits += 2\n")
    assert broken != text
    path.write_text(broken, encoding="utf-8")
    done = run_its_tests(checkout)
    assert done.returncode == 1 and "test_one_trace_by_hand" in done.stdout


def test_it_follows_the_rules_of_the_house(example, checkout):
    files, _ = example
    assert len(files) == 3
    for path, text in files.items():
        source = house_rules.Source(path, text)
        assert not [str(found) for rule in house_rules.RULES for found in rule(source)]
    shutil.copy(ROOT / "pyproject.toml", checkout)
    for command in (["ruff", "check", "--no-cache"], ["ruff", "format", "--no-cache", "--check"]):
        done = run(checkout, *command, *files)
        assert done.returncode == 0, done.stdout + done.stderr
