"""A whole run on a problem whose optimum is known, and what its directory refuses."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from environments.errors import UserError
from tests.full_disk import no_room
from tests.requirements import needs_an_unprivileged_user
from tests.tfrl_systems.systems.inlining.imitation.site_problem import SiteProblem, draw_sites
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.loop import Config
from tfrl_systems.systems.inlining.imitation.run import run_bc_max
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.training.agent_state import AgentState
from tfrl_systems.training.checkpoints import open_workdir
from tfrl_systems.training.summaries import write_settings

AGENT = decision_agent.Config(num_models=1, hidden_sizes=(16,), batch_size=16)
SETTINGS = {"environment": "sites", "seed": 0}


class Interrupted(Exception):
    """Stands for a signal at the end of an iteration."""


def train(
    path,
    iterations=2,
    holdout=None,
    resume=False,
    stop_after=None,
    agent_config=AGENT,
    validation=None,
    problem=None,
    margins=(0.0, 1.0),
):
    config = Config(iterations=iterations, baselines=("default", "never"), margins=margins)
    told = []

    def on_iteration(record, resumed):
        told.append((record["number"], resumed))
        if record["number"] == stop_after:
            raise Interrupted

    with open_workdir(path, SETTINGS, resume=resume) as workdir:
        result = run_bc_max(
            problem or SiteProblem(draw_sites(0)),
            validation or SiteProblem(draw_sites(7)),
            holdout,
            config,
            agent_config,
            workdir,
            {"environment": "sites"},
            on_iteration,
        )
    return result, told


def test_a_resumed_run_is_the_run_itself(tmp_path):
    whole, told = train(tmp_path / "whole")
    assert told == [(1, False), (2, False)]
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", stop_after=1)
    resumed, told = train(tmp_path / "cut", resume=True)
    assert told == [(1, True), (2, False)]
    for name in ("policy_sha256", "experience_sha256", "environment_steps"):
        assert resumed[name] == whole[name]


def test_more_iterations_go_on_from_where_the_run_ended(tmp_path):
    train(tmp_path, iterations=1)
    result, told = train(tmp_path, iterations=2, resume=True)
    assert told == [(1, True), (2, False)] and result["iterations"] == 2
    policy = CallSitePolicy.load(tmp_path / "policy")
    assert policy.fingerprint == result["policy_sha256"]


def test_held_out_contexts_are_measured_and_nothing_is_chosen_by_them(tmp_path):
    alone, _ = train(tmp_path / "alone")
    measured, _ = train(tmp_path / "measured", holdout=SiteProblem(draw_sites(1)))
    assert alone["policy_sha256"] == measured["policy_sha256"]
    assert alone["evaluation"]["holdout"] is None
    assert measured["evaluation"]["holdout"]["contexts"] == 8
    assert measured["evaluation"]["holdout"]["saving_percent"] > 0


def test_the_policy_is_that_of_the_best_iteration_on_the_validation_contexts(tmp_path):
    result, _ = train(tmp_path, iterations=3)
    found = result["evaluation"]
    scores = [one["score"] for one in found["iterations"]]
    assert found["chosen_iteration"] == 1 + scores.index(max(scores))
    chosen = CallSitePolicy.load(
        tmp_path / "checkpoints" / f"{found['chosen_iteration']:06d}/policy"
    )
    assert CallSitePolicy.load(tmp_path / "policy").fingerprint == chosen.fingerprint


def test_a_run_that_gains_nothing_ends_with_the_default(tmp_path):
    # Whatever departs from the default there costs more.
    sites = {f"v{k}/c": (f"v{k}", [(1, 40), (9, -40)] * 4) for k in range(3)}
    opposite = SiteProblem(draw_sites(0))
    for features in opposite._features.values():
        features[:, 2] = np.where(features[:, 1] == 1, -30, 30)
    config_problem = SiteProblem(sites)
    result, _ = train(tmp_path, validation=config_problem, problem=opposite)
    assert [one["score"] for one in result["evaluation"]["iterations"]] == [0, 0]
    policy = CallSitePolicy.load(tmp_path / "policy")
    for one in config_problem.play(policy, "test"):
        assert np.array_equal(one.actions, one.features[:, 1])


def test_a_setting_out_of_range_is_found_before_anything_is_played(tmp_path):
    with pytest.raises(UserError, match="expected num_models within its range"):
        train(tmp_path, agent_config=decision_agent.Config(num_models=0))
    with pytest.raises(UserError, match="margins: expected one or more numbers"):
        train(tmp_path, margins=())
    # Nothing was finished, so the directory takes any other run.
    assert train(tmp_path, iterations=1)[1] == [(1, False)]


def test_a_directory_is_for_one_process_and_one_run(tmp_path):
    with (
        open_workdir(tmp_path / "run", SETTINGS, resume=False),
        pytest.raises(UserError, match="another process at work on it"),
    ):
        train(tmp_path / "run")
    train(tmp_path / "run", iterations=1)
    with pytest.raises(UserError, match="go on with it by --resume"):
        train(tmp_path / "run")
    with (
        pytest.raises(UserError, match='resume with environment = "sites" as the run began'),
        open_workdir(tmp_path / "run", {**SETTINGS, "environment": "x"}, resume=True),
    ):
        pass


def test_a_killed_runs_remains_give_way(tmp_path):
    (tmp_path / ".unfinished" / "policy").mkdir(parents=True)
    (tmp_path / ".unfinished" / "run.json").write_text("{")
    train(tmp_path, iterations=1)
    assert not (tmp_path / ".unfinished").exists()


def test_a_damaged_checkpoint_is_one_line(tmp_path):
    train(tmp_path, iterations=1)
    (tmp_path / "checkpoints" / "000001" / "iteration.json").write_text("{")
    with pytest.raises(UserError, match="iteration.json: expected the file that training wrote"):
        train(tmp_path, iterations=2, resume=True)


def test_a_run_that_a_mistake_ends_at_once_leaves_nothing(tmp_path):
    path = tmp_path / "new" / "run"
    with pytest.raises(UserError), open_workdir(path, SETTINGS, resume=False):
        assert (path / "run.json").exists()
        raise UserError("expected a, found b; do c")
    assert not any(tmp_path.iterdir())


def write_curves(workdir):
    write_settings(workdir.tensorboard, SETTINGS)


def write_state(workdir):
    agent = tf.Module()
    agent.weights = tf.Variable(tf.zeros([1000]))
    workdir.save(1, AgentState(agent).save, {})


@pytest.mark.parametrize(
    ("write", "where"), [(write_curves, "tensorboard"), (write_state, "state")]
)
def test_a_full_disk_is_one_line_also_where_tensorflow_writes(tmp_path, write, where):
    with (
        pytest.raises(UserError, match="expected to write there, found: .*free some space") as told,
        open_workdir(tmp_path, SETTINGS, resume=False) as workdir,
        no_room(),
    ):
        write(workdir)
    message = str(told.value)
    assert where in message and "File too large" in message
    assert not set("\n[]{}") & set(message.replace(str(tmp_path), ""))


@needs_an_unprivileged_user
def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="name another with --workdir"):
        train(tmp_path / "run")


def test_a_file_in_the_place_of_the_directory_is_one_line(tmp_path):
    path = pathlib.Path(tmp_path, "file")
    path.write_text("")
    with pytest.raises(UserError, match="expected to make a directory for the run"):
        train(path)


def test_records_are_json_without_nan(tmp_path):
    result, _ = train(tmp_path, iterations=1)
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(result)) and "NaN" not in text
