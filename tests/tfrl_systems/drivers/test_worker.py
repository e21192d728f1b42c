"""What a worker answers: results and errors, and never those of other data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.drivers.runners import Noise, Task
from tfrl_systems.drivers.pipes.messages import pickled
from tfrl_systems.drivers.worker import Answer, Worker


@pytest.fixture
def worker(monkeypatch):
    """One that has loaded data of version 1."""
    monkeypatch.setattr("gc.freeze", lambda: None)
    worker = Worker()
    assert not worker.start(pickled(Noise)).is_error
    assert not worker.load(pickled(b"5"), 1).is_error
    return worker


def test_it_never_runs_a_job_with_another_version(worker):
    assert worker.load(pickled(b"five"), 2).is_error
    answer = worker.run(pickled(Task(0)), 2)
    assert answer.is_error
    assert "expected data of version 2 for the job, found version 1" in answer.value.message
    assert worker.run(b"no pickle", 1).is_error
    assert len(worker.run(pickled(Task(0, size=7)), 1).value) == 7


def test_large_results_are_small_on_their_way_to_another_node():
    zeros = np.zeros(500_000)
    answer = Answer(pickled(zeros), seconds=2.0)
    sent = answer.compressed()
    assert len(sent.payload) < len(answer.payload) / 100
    assert sent.value.tobytes() == zeros.tobytes()
    assert sent.seconds == 2.0
    small = Answer(pickled(1))
    assert small.compressed() is small
