"""Studies of learn_to_optimize, as small as they can be."""

from __future__ import annotations

import numpy as np
import pytest

from tools.studies import functions, learn_to_optimize, writing
from tools.studies.learn_to_optimize import QUALITY, SAMPLER_NAMES, SAMPLERS

pytestmark = pytest.mark.ci
SMALL = ("--seeds", 1, "--set", "num_chunks=1", "--set", "hidden_sizes=4")


@pytest.mark.slow
def test_learned_policies_beside_baselines(study):
    words = (*SMALL, "--iterations", 3, "--function", "sphere", "--function", "Rosenbrock")
    status, text, records = study("quality", *words)
    header = next(line for line in text.splitlines() if line.startswith("| function"))
    assert status == 0 and header == "| function | constant | random | scipy | ppo |"
    assert records["sphere-constant-seed-0"]["measured"]["error"] == pytest.approx(0)
    learned = records["Rosenbrock-ppo-seed-0"]["measured"]
    assert learned["error"] == learned["last_tenth"]["msle"]


def test_what_the_quality_is_compared_with():
    options = QUALITY.options(seeds=2, agents=("ppo", "bc_max"))
    names = [trial.name for trial in QUALITY.trials(options)]
    # Each of 6 functions: what is random and the agents twice, two others once, CMA-ES where n > 2.
    assert len(set(names)) == len(names) == 6 * (3 * 2 + 2) + 1
    assert [name for name in names if "cma" in name] == ["rotated-Rosenbrock-n10-k3-cma-seed-0"]
    # 3 functions, with 30 episodes an iteration and with 1,024.
    trials = list(SAMPLERS.trials(SAMPLERS.options(seeds=1)))
    assert len(trials) == 2 * 3 * len(SAMPLER_NAMES)


@pytest.mark.slow
def test_samplers_are_compared_with_one_class_of_policies(study):
    words = ("--seeds", 1, "--set", "hidden_sizes=4", "--iterations", 20, "--function", "Ackley")
    chosen = ("--sampler", "random", "--sampler", "heterogeneous")
    status, text, records = study("samplers", *words, *chosen, "--episodes", 30)
    assert status == 0 and "| 30, Ackley, ppo, heterogeneous | " in text
    policies = set()
    for record in records.values():
        settings = record["about"]["settings"]
        assert settings["state_dependent_std"] and settings["num_strata"] == 10
        policies.add(record["measured"]["policy_sha256"])
    # 20 iterations of 3 chunks of 10 episodes of 2 steps.
    assert [record["measured"]["steps"] for record in records.values()] == [20 * 60] * 2
    assert len(policies) == 2


def test_convergence_by_hand(monkeypatch):
    """Table 6.2 of Mayer's thesis, of 20 iterations: 4 are a fifth.

    The first errors are 4 and 2, of mean 3 and variance 1; the last 1 and 0: 0.5 and 0.25.
    """
    errors = [4, 2, 9, 9, 9, 9, 9, 9, 1, 0]
    curve = [{"iteration": 2 * number, "mse": error} for number, error in enumerate(errors, 1)]
    monkeypatch.setattr(learn_to_optimize, "measure", lambda about, workdir: {"curve": curve})
    measured = SAMPLERS.measure({"iterations": 20, "title": "Ackley"}, None)
    shown = {"first": 3, "first_variance": 1, "last": 0.5, "last_variance": 0.25}
    assert {name: measured[name] for name in shown} == shown
    row = {"episodes": 30, "title": "Ackley", "agent": "ppo", "sampler": "random"}
    records = [{**row, **shown, "last": 7}, {**row, **shown}]
    text = writing.to_markdown(SAMPLERS.tables[0], records)
    assert text.endswith("| 3 | 1 | 3.8 (0.5..7) | 0.25 |")


@pytest.mark.slow
def test_polished_answers(study):
    status, text, records = study("unseen", *SMALL, "--agent", "es", "--iterations", 2)
    assert status == 0 and "| wandering, es |" in text and "| rotated, es |" in text
    for record in records.values():
        assert record["measured"]["polished"] < record["measured"]["error"]


def test_functions_are_least_where_they_say():
    c = np.linspace(-1, 1, 5)
    minima = {
        functions.wandering: [0.45 * np.sin(2.5 * c + 0.3) + 0.2 * c**2, c],
        functions.rotated: [0.5 * np.cos(1.5 * c), -0.4 * c, c],
    }
    for function, columns in minima.items():
        points = np.stack(columns, axis=1)
        np.testing.assert_allclose(function(points), 0, atol=1e-12)
        points[:, 0] += 0.1
        assert (function(points) > 1e-3).all()
