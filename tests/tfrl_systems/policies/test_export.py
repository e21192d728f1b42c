"""Policies on disk: complete, readable by anyone who should, and checked when read."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from environments import files
from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.policies import export, policy_files
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

METADATA = {"environment": "inlining", "compiler": "LLVM 22"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of a saved policy."""
    directory = tmp_path_factory.mktemp("policies") / "saved"
    export.save_policy(directory, decision_rows.greedy(), METADATA)
    return directory


@pytest.fixture
def policy(saved, tmp_path):
    """A copy that a test may spoil."""
    copy = tmp_path / "policy"
    copy.mkdir()
    for name in (policy_files.JSON_NAME, policy_files.ARRAYS_NAME):
        (copy / name).write_bytes((saved / name).read_bytes())
    return copy


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.ci
def test_a_fresh_tensorflow_process_decides_the_same(saved, tmp_path):
    """Without our code: TensorFlow and TF-Agents' time steps are all that a user needs."""
    rows = decision_rows.draw(5000, 21)
    np.save(tmp_path / "rows.npy", rows)
    code = """
import sys, environments, numpy as np, tensorflow as tf
from tf_agents.trajectories import time_step as ts
directory, scratch, *names = sys.argv[1:]
rows = np.load(scratch + "/rows.npy")
policy = tf.saved_model.load(directory)
for size in (len(rows), 1):
    observation = {name: tf.constant(rows[:size, i]) for i, name in enumerate(names)}
    step = policy.action(ts.restart(observation, batch_size=size))
    np.save(f"{scratch}/{size}.npy", step.action.numpy())
assert not any(name.startswith("tfrl_systems") for name in sys.modules)
"""
    run_python(code, str(saved), str(tmp_path), *NAMES)
    expected = CallSitePolicy.load(saved).begin("m", NAMES)(rows, 0)
    np.testing.assert_array_equal(np.load(tmp_path / "5000.npy"), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "1.npy"), expected[:1])


def test_policy_json_says_how_it_came_about(saved):
    described = policy_files.load_policy_json(saved)
    assert described["environment"] == "inlining" and described["compiler"] == "LLVM 22"
    assert described["kind"] == "networks" and described["margin"] == 0.3
    assert described["baseline_feature"] == "inlining_default"
    assert described["scope_feature"] == ""
    assert described["features"] == sorted(NAMES)
    assert set(described["features_needed"]) <= set(NAMES)
    assert described["settings"]["seed"] == 0 and described["settings"]["epochs"] == 12
    assert {"python", "tensorflow", "numpy"} <= set(described["versions"])
    assert (saved / "policy_specs.pbtxt").exists()


@pytest.mark.usefixtures("no_saved_models")
def test_saving_again_replaces_and_gives_the_same_digest(tmp_path):
    policy = decision_rows.greedy()
    target = tmp_path / "deep" / "policy"
    first = export.save_policy(target, policy, {"corpus": "a"})
    assert export.save_policy(target, policy, {"corpus": "b"}) == first
    assert policy_files.load_policy_json(target)["corpus"] == "b"
    assert [path.name for path in target.parent.iterdir()] == ["policy"]


def test_a_foreign_directory_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="left alone"):
        export.save_policy(tmp_path, decision_rows.greedy(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.usefixtures("no_saved_models")
@pytest.mark.parametrize("fault", ["no room for the arrays", "no way into its place"])
def test_a_failed_save_leaves_the_old_policy(tmp_path, monkeypatch, fault):
    rename = pathlib.Path.rename

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    policy = decision_rows.greedy()
    target = tmp_path / "policy"
    digest = export.save_policy(target, policy, {})
    if fault == "no room for the arrays":
        monkeypatch.setattr(np, "savez_compressed", fail)
    else:  # The old policy is out of the way already.
        monkeypatch.setattr(
            pathlib.Path,
            "rename",
            lambda *paths: (fail if paths[0].name == "new" else rename)(*paths),
        )
    with pytest.raises(UserError, match="No space left on device; free some space"):
        export.save_policy(target, policy, {})
    assert policy_files.load_policy_json(target)["arrays_sha256"] == digest
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_directory_without_a_policy(tmp_path):
    with pytest.raises(UserError, match=r"policy directory with policy.json, found No such file"):
        CallSitePolicy.load(tmp_path)


def change_json(policy, **changes):
    path = policy / policy_files.JSON_NAME
    described = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in described.items() if v is not None}))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"format": "other"}, "found another file of that name"),
        ({"format_version": 99}, "expected format version 1, found 99"),
        ({"kind": None}, "expected the fields kind"),
        ({"arrays_sha256": "0"}, "SHA-256 0, found"),
        ({"features": []}, "files fit each other"),
        ({"margin": None}, "files fit each other"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(policy, changes, words):
    change_json(policy, **changes)
    with pytest.raises(UserError, match=words) as caught:
        CallSitePolicy.load(policy)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused(policy):
    arrays = policy / policy_files.ARRAYS_NAME
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-100])
    with pytest.raises(UserError, match="damaged"):
        CallSitePolicy.load(policy)
    change_json(policy, arrays_sha256=files.sha256(arrays))
    with pytest.raises(UserError, match="expected the policy's arrays"):
        CallSitePolicy.load(policy)
    arrays.unlink()
    with pytest.raises(UserError, match="No such file"):
        CallSitePolicy.load(policy)
    (policy / policy_files.JSON_NAME).write_text('{"format": ')
    with pytest.raises(UserError, match="expected JSON"):
        CallSitePolicy.load(policy)
