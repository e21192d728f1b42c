"""Policy gradients on inlining: they begin with LLVM's decisions, learn, and can be evaluated."""

from __future__ import annotations

import json

import pytest

from tests.tfrl_systems.cli.test_train import FIELDS, read_result
from tests.tfrl_systems.conftest import as_words


@pytest.fixture
def train(tfrl, saving, cache):
    def run(agent, workdir, *more, **settings):
        small = {"num_chunks": 4, "episodes_per_chunk": 4, "hidden_sizes": 16, "scope": "all"}
        if agent != "es":
            small["group"] = 2
        words = as_words(**{**small, **settings})
        return tfrl(
            *("train", "inlining", "--agent", agent, "--corpus", saving, "--cache", cache),
            *("--workdir", workdir, *words, *more, "--json"),
        )

    return run


@pytest.mark.ci
def test_ppo_learns(train, tfrl, saving, cache, tmp_path):
    settings = {"default_probability": 0.8, "learning_rate": 0.03, "evaluate_every": 9}
    more = ("--iterations", 9, "--collect", "inprocess")
    ran = train("ppo", tmp_path / "run", *more, **settings)
    result = ran.result
    assert result == read_result(tmp_path / "run") and result.keys() >= FIELDS
    assert result["settings"]["gamma"] == 1
    last = result["evaluation"]["last"]
    # The module without call sites is not learned on, and without --holdout not measured either.
    assert (last["contexts"], last["worse"]) == (3, 0) and last["saving_percent"] > 5
    ran = tfrl(
        *("evaluate", "inlining", "--policy", tmp_path / "run" / "policy", "--corpus", saving),
        *("--cache", cache, "--json"),
    )
    sizes = {
        module["module"]: module["size_bytes"] for module in ran.json["policies"][0]["per_module"]
    }
    assert sum(sizes.values()) - sizes["alpha/none.c"] == last["cost"]


@pytest.mark.ci
def test_es_learns_what_all_modules_save_together(train, tmp_path):
    """A step of its first policy is LLVM's own decision; its last policy is better."""
    settings = {"num_chunks": 8, "evaluate_every": 6, "learning_rate": 0.2, "noise_std": 0.1}
    more = ("--iterations", 6, "--collect", "inprocess")
    ran = train("es", tmp_path / "run", *more, **settings)
    last = ran.result["evaluation"]["last"]
    assert last["saving_percent"] > 5 and ran.result["agent"] == "es"
    described = json.loads((tmp_path / "run" / "policy" / "policy.json").read_text())
    assert (described["kind"], described["agent"]) == ("actor", "es")


@pytest.mark.ci
def test_reinforce_begins_with_llvm_s_own_decisions(train, holdout, tmp_path):
    more = ("--iterations", 1, "--workers", 1, "--holdout", holdout)
    ran = train("reinforce", tmp_path / "run", *more, learning_rate=1e-6)
    assert ran.status == 0 and "iteration 1: +0.00% against LLVM's own decisions" in ran.err
    last = ran.json["evaluation"]["last"]
    assert (last["contexts"], last["changed"], last["cost"]) == (2, 0, last["default_cost"])
    described = json.loads((tmp_path / "run" / "policy" / "policy.json").read_text())
    assert (described["kind"], described["agent"]) == ("actor", "reinforce")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"default_probability": 1}, "expected default_probability between 0 and 1, found 1.0"),
        ({"max_bitcode_bytes": 5}, "expected modules with call sites to decide, found none"),
        ({"scope": "linkonce"}, "found none among 4; name another by --corpus, or --set scope=all"),
        ({"gamma": 2}, "ppo: expected gamma within its range, found 2.0"),
    ],
)
def test_settings_that_cannot_work_are_one_line(train, tmp_path, settings, message):
    ran = train("ppo", tmp_path / "run", "--workers", 1, **settings)
    assert ran.status == 1 and message in ran.err.splitlines()[-1]
