"""What the directory of a run refuses, and that its faults are one line."""

from __future__ import annotations

import pytest
import tensorflow as tf

from environments.errors import UserError
from tests.full_disk import no_room
from tests.requirements import needs_an_unprivileged_user
from tfrl_systems.training.agent_state import AgentState
from tfrl_systems.training.checkpoints import open_workdir
from tfrl_systems.training.curves import write_settings

SETTINGS = {"environment": "sites", "seed": 0}


def open_run(path, resume=False, **changes):
    return open_workdir(path, {**SETTINGS, **changes}, resume=resume)


def save(workdir):
    workdir.save(1, lambda directory: (directory / "policy").mkdir(), {"number": 1})


def test_a_directory_is_for_one_process_and_one_run(tmp_path):
    with (
        open_run(tmp_path) as workdir,
        pytest.raises(UserError, match="another process at work on it"),
        open_run(tmp_path),
    ):
        pass
    # Nothing was finished, so the directory takes any other run.
    with open_run(tmp_path, seed=1) as workdir:
        save(workdir)
    with pytest.raises(UserError, match="go on with it by --resume"), open_run(tmp_path, seed=1):
        pass
    wrong = pytest.raises(UserError, match="resume with seed = 1 as the run began, found 0")
    with wrong, open_run(tmp_path, resume=True):
        pass


def test_a_run_without_a_setting_had_its_default(tmp_path):
    with open_workdir(tmp_path, SETTINGS, resume=False) as workdir:
        save(workdir)
    defaults = {"group": 1}
    with open_workdir(tmp_path, SETTINGS, defaults, resume=True) as workdir:
        assert workdir.last()
    wrong = pytest.raises(UserError, match="resume with group = 1 as the run began, found 4")
    with wrong, open_workdir(tmp_path, {**SETTINGS, "group": 4}, defaults, resume=True):
        pass


def test_a_killed_runs_remains_give_way(tmp_path):
    (tmp_path / ".unfinished" / "policy").mkdir(parents=True)
    (tmp_path / ".unfinished" / "run.json").write_text("{")
    with open_run(tmp_path) as workdir:
        save(workdir)
    assert not (tmp_path / ".unfinished").exists()


def test_a_run_that_a_mistake_ends_at_once_leaves_nothing(tmp_path):
    path = tmp_path / "new" / "run"
    with pytest.raises(UserError), open_run(path):
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
        pytest.raises(
            UserError, match="expected to write there, found: .*free some space"
        ) as error,
        open_run(tmp_path) as workdir,
        no_room(),
    ):
        write(workdir)
    message = str(error.value)
    assert where in message and "File too large" in message
    assert not set("\n[]{}") & set(message.replace(str(tmp_path), ""))


def test_other_files_in_the_directory_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="found other files"), open_run(tmp_path):
        pass
    wrong = pytest.raises(UserError, match="expected to make a directory for")
    with wrong, open_run(tmp_path / "thesis.txt"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@needs_an_unprivileged_user
def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="name another with --workdir"), open_run(tmp_path / "run"):
        pass
