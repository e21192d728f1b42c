"""A whole run on a problem whose optimum is known."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining.imitation.site_problem import SiteProblem, draw_sites
from tfrl_systems.systems.inlining.imitation import cloning
from tfrl_systems.systems.inlining.imitation.loop import Config
from tfrl_systems.systems.inlining.imitation.run import run_bc_max
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.training.checkpoints import open_workdir

CLONING = cloning.Config(num_models=1, hidden_sizes=(16,), batch_size=16)


def train(path, problem=None, validation=None, holdout=None, cloning_config=CLONING, **settings):
    config = Config(**{"baselines": ("default", "never"), "margins": (0.0, 1.0), **settings})
    reports = []
    with open_workdir(path, {"environment": "sites"}, resume=True) as workdir:
        result = run_bc_max(
            problem or SiteProblem(draw_sites(0)),
            validation or SiteProblem(draw_sites(7)),
            holdout,
            config,
            cloning_config,
            workdir,
            {"environment": "sites"},
            lambda record, resumed: reports.append((record["number"], resumed)),
        )
    return result, reports


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a run of two iterations, and what it returned."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return path, *train(path, holdout=SiteProblem(draw_sites(1)))


def test_the_policy_is_that_of_the_best_iteration_on_the_validation_contexts(finished):
    path, result, reports = finished
    assert reports == [(1, False), (2, False)]
    evaluation = result["evaluation"]
    scores = [iteration["score"] for iteration in evaluation["iterations"]]
    assert evaluation["chosen_iteration"] == 1 + scores.index(max(scores))
    chosen = path / "checkpoints" / f"{evaluation['chosen_iteration']:06d}" / "policy"
    fingerprints = {CallSitePolicy.load(place).fingerprint for place in (path / "policy", chosen)}
    assert fingerprints == {result["policy_sha256"]}
    assert evaluation["holdout"]["contexts"] == 8 and evaluation["holdout"]["saving_percent"] > 0
    text = (path / "result.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(result)) and "NaN" not in text


@pytest.mark.ci
def test_a_resumed_run_is_the_run_itself(finished, tmp_path):
    """Here without contexts that are held out: nothing is chosen by them."""
    _, whole, _ = finished
    train(tmp_path, iterations=1)
    resumed, reports = train(tmp_path)
    assert reports == [(1, True), (2, False)] and resumed["iterations"] == 2
    for name in ("policy_sha256", "experience_sha256", "environment_steps"):
        assert resumed[name] == whole[name]
    records = (result["evaluation"]["iterations"][1] for result in (resumed, whole))
    names = ("policy", "policy_cost", "oracle_cost", "rows", "loss", "margin", "bold_margin")
    assert len({tuple(record[name] for name in names) for record in records}) == 1
    assert resumed["evaluation"]["holdout"] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cloning_config": cloning.Config(num_models=0)}, "expected num_models within its range"),
        ({"around": "best"}, "around: expected one of last, all, found 'best'"),
        ({"flip_share": 1.5}, "flip_share from 0 to 1, found 1.0 and 1.5"),
        ({"baselines": ("cost<3",)}, "found cost<3"),
    ],
)
def test_a_setting_out_of_range_is_found_before_anything_is_played(tmp_path, settings, message):
    problem = SiteProblem(draw_sites(0))
    with pytest.raises(UserError, match=message):
        train(tmp_path, problem, **settings)
    assert not problem.labels
