"""Runs of a day: what is measured of them, and that their memory does not grow."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tensorflow as tf

from tests.requirements import needs_colab_stack
from tools.studies import long_runs

pytestmark = pytest.mark.ci

# TensorFlow 2.15 on Python 3.11 loses 48 bytes with each eager tensor (its issue 62551).
LEAKS = tf.__version__.startswith("2.15")


def test_growth_by_hand():
    """The first two of five samples are the warm-up; then 1 MiB comes in 200 iterations."""
    samples = [
        {"iteration": 100.0 * number, "head_mib": mib}
        for number, mib in enumerate((5.0, 90.0, 100.0, 100.5, 101.0))
    ]
    assert long_runs.growth(samples, "head_mib") == pytest.approx(5.0)
    assert long_runs.growth(samples[:1], "head_mib") is None


def test_a_sample_sees_memory_of_descendants_and_files(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(bytes(1 << 19))
    # The process of the tests may have other children.
    before_mib = long_runs.sample(tmp_path)["workers_mib"]
    held = "held = b'1' * (64 << 20); print(flush=True); input()"
    with subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{held}"; true'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        parent.stdout.readline()
        sample = long_runs.sample(tmp_path)
    assert 64 <= sample["workers_mib"] - before_mib < 128
    assert sample["files"] == 1 and sample["disk_mib"] == 0.5
    assert sample["open_files"] >= 3 and sample["threads"] >= 1


def test_numbers_of_all_iterations_are_not_kept(tmp_path):
    """Setting the learning rate 3,000 times takes nothing; of Python numbers it took 2.2 MiB."""
    from tfrl_systems.networks.adam import Adam

    optimizer = Adam(1.0, [tf.Variable([0.0])])

    def set_many(first):
        for number in range(first, first + 3000):
            optimizer.set_learning_rate(1 / number)
        return long_runs.sample(tmp_path)["head_mib"]

    before = set_many(1)
    assert set_many(3001) - before < 0.6


@pytest.mark.slow
@needs_colab_stack(not LEAKS, "TensorFlow 2.15 loses memory by itself")
def test_memory_is_flat(tmp_path):
    """300 iterations of evolution strategies, after as many of warm-up, grow by less than 1 MiB."""
    script = f"""
from tfrl_systems import experiments
from tools.studies import long_runs

class Sampler(experiments.Reporter):
    done = 0
    def task(self, label, total):
        return self.advance
    def advance(self, count):
        self.done += count
        if self.done in (300, 600):
            print(long_runs.sample(long_runs.pathlib.Path({str(tmp_path)!r}))["head_mib"])

loop = long_runs.LOOPS["es"]
settings = dict(loop.settings, iterations=601, evaluate_every=1, checkpoint_every=10)
experiments.train(loop.system, agent=loop.agent, workdir={str(tmp_path / "run")!r},
                  settings=settings, reporter=Sampler(), **loop.problem)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after = map(float, ran.stdout.split())
    assert after - before < 1
