"""Learning to optimise from the command line, for real: results, mistakes, a killed run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import onnxruntime
import pytest

from environments.errors import UserError
from tests.tfrl_systems.cli.test_train import read_result
from tests.tfrl_systems.conftest import as_words
from tfrl_systems import experiments
from tfrl_systems.cli.main import main
from tfrl_systems.drivers.collect import Collect

QUICK = as_words(hidden_sizes=8, num_chunks=2, episodes_per_chunk=4, checkpoint_every=5)
TRAIN = ("train", "learn_to_optimize", "--agent", "reinforce", *QUICK, "--iterations", "20")
SAME = ("experience_sha256", "policy_sha256", "environment_steps", "function_evaluations")


def train_arguments(workdir, *more):
    return [*TRAIN, "--function", "shifted_sphere", "--workdir", str(workdir), *more]


@pytest.fixture(scope="session")
def trained(lend):
    """The directory of a run that nobody interrupted."""

    def train(path):
        assert main(train_arguments(path)) == 0

    return lend("reinforce from the command line", train)


@pytest.mark.ci
def test_a_policy_becomes_an_onnx_model(trained, tfrl, tmp_path):
    export = ("export", "--policy", trained / "policy", "--format", "onnx", "-o")
    result = tfrl(*export, tmp_path / "optimiser.onnx", "--json").json
    assert result["size_bytes"] == (tmp_path / "optimiser.onnx").stat().st_size
    session = onnxruntime.InferenceSession(tmp_path / "optimiser.onnx")
    (x,) = session.run(["x"], {"c": np.zeros((3, 1), np.float32)})
    assert x.shape == (3, 1) and np.all(np.abs(x) <= 1)
    ran = tfrl(*export, tmp_path / "no" / "optimiser.onnx")
    assert ran.status == 1 and "make it" in ran.err and len(ran.err.splitlines()) == 1


def test_evaluate(trained, tfrl):
    policy = str(trained / "policy")
    ran = tfrl("evaluate", "learn_to_optimize", "--policy", policy, "--policy", "scipy", "--json")
    evaluation = ran.json
    assert ran.status == 0 and evaluation["function"] == "shifted_sphere"
    learned, scipy = evaluation["policies"]
    assert learned["policy"] == policy and scipy["policy"] == "scipy"
    assert learned.keys() >= {"mse", "msle", "microseconds_per_query"}
    # A sphere is easy for scipy, and 20 iterations are few.
    assert scipy["mse"] < 1e-9 < learned["mse"]
    assert learned["mse"] == read_result(trained)["evaluation"]["last"]["mse"]
    # A sphere has nothing to hide from a quadratic.
    arguments = ("evaluate", "learn_to_optimize", "--policy", policy, "--polish", 10, "--json")
    (polished,) = tfrl(*arguments).json["policies"]
    assert polished["mse"] < 1e-6 < learned["mse"]


@pytest.mark.ci
def test_a_killed_run_goes_on(tfrl, tmp_path, trained):
    """A process that was killed and what went on leave what a run leaves that nobody stopped."""
    workdir = tmp_path / "run"
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tfrl_systems.cli.main", *train_arguments(workdir, "--json")],
            stdout=out,
            stderr=err,
        )
    while not any((workdir / "checkpoints").glob("[0-9]*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Nothing on stdout before the one object; on stderr progress, and nothing of TensorFlow.
    said = (tmp_path / "err").read_text()
    assert not (tmp_path / "out").read_text()
    ours = ("iterations", "shifted_sphere: ")
    assert all(any(own in line for own in ours) for line in said.splitlines()), said
    resumed = tfrl(*train_arguments(workdir, "--resume", "--json"))
    assert resumed.status == 0, resumed.err
    result, whole = read_result(workdir), read_result(trained)
    assert [result[name] for name in SAME] == [whole[name] for name in SAME]
    assert resumed.json == result


def test_a_chunk_timeout_is_that_of_the_workers(tfrl, tmp_path, monkeypatch):
    """What a pool does with it, `drivers/test_collect.py` tries."""
    places = []

    def train(*_, collect, **__):
        places.append(collect)
        raise UserError("enough")

    monkeypatch.setattr(experiments, "train", train)
    limit = ("--collect", "pipes", "--workers", "3", "--chunk-timeout", "7")
    assert tfrl(*train_arguments(tmp_path / "run", *limit)).status == 1
    assert places == [Collect("pipes", 3, timeout_s=7)]


def test_a_policy_for_other_dimensions(tfrl, trained):
    policy = str(trained / "policy")
    named = ("--policy", policy, "--function", "sphere", "--dimensions", "3")
    ran = tfrl("evaluate", "learn_to_optimize", *named)
    assert ran.status == 1 and "dimensions = 3, found one for 2" in ran.err
