"""Studies of learn_to_optimize, as small as they can be."""

from __future__ import annotations

import numpy as np
import pytest

from tools.studies import functions
from tools.studies.learn_to_optimize import QUALITY, SAMPLER_NAMES, SAMPLERS

pytestmark = pytest.mark.study
SMALL = ("--seeds", 1, "--set", "num_chunks=1", "--set", "hidden_sizes=4")


def trials(study, **options):
    return list(study.trials(study.options(**options)))


def test_learned_policies_beside_baselines(study):
    words = (*SMALL, "--iterations", 3, "--function", "sphere", "--function", "Rosenbrock")
    status, text, records = study("quality", *words)
    header = next(line for line in text.splitlines() if line.startswith("| function"))
    assert status == 0 and header == "| function | constant | random | scipy | ppo |"
    assert records["sphere-constant-seed-0"]["measured"]["error"] == pytest.approx(0)
    learned = records["Rosenbrock-ppo-seed-0"]["measured"]
    assert learned["error"] == learned["last_tenth"]["msle"]


def test_what_the_quality_is_compared_with():
    planned = trials(QUALITY, seeds=2, agents=("ppo", "bc_max"))
    names = [trial.name for trial in planned]
    # Each of 6 functions: what is random and the agents twice, two others once, CMA-ES where n > 2.
    assert len(set(names)) == len(names) == 6 * (3 * 2 + 2) + 1
    assert [name for name in names if "cma" in name] == ["rotated-Rosenbrock-n10-k3-cma-seed-0"]
    assert len(trials(SAMPLERS, seeds=1)) == 3 * len(SAMPLER_NAMES)


def test_polished_answers(study):
    status, text, records = study("unseen", *SMALL, "--agent", "es", "--iterations", 2)
    assert status == 0 and "| wandering, es |" in text and "| rotated, es |" in text
    for record in records.values():
        assert record["measured"]["polished"] < record["measured"]["error"]


def test_evaluations_are_counted(study):
    words = ("--agent", "ppo", "--seeds", 1, "--iterations", 2, "--set", "hidden_sizes=4")
    _, text, records = study("few_evaluations", *words)
    (record,) = records.values()
    measured = record["measured"]
    # 4 chunks of 40 episodes of 3 evaluations; and those of the scale and the validation.
    assert measured["evaluations"] - measured["truth_evaluations"] >= 2 * 480
    assert f"| ppo | {measured['evaluations'] - measured['truth_evaluations']:,} | " in text
    assert measured["steps"] == 2 * 4 * 40 * 2


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
