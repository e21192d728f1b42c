"""Models run in a process of their own, which may crash and is started again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from environments.errors import UserError
from environments.isolation import wire
from environments.isolation.process import CrashError
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.isolation.remote import (
    Isolated,
    alone,
    evaluate,
    model_process,
    run_on_one_processor,
)
from tests.environments.tensor_graphs.execution.models import crashing, parsed

RELU = "g (float[n] x) => (float[n] y) { y = Relu(x) }"
X = {"x": np.float32([-1, 2])}


@pytest.fixture(scope="module")
def isolated():
    isolated_backend = Isolated(backend(), model_process())
    yield isolated_backend
    isolated_backend.process.kill()


def test_it_starts_without_what_only_its_caller_needs():
    """A measurement starts nine of them."""
    server = "environments.tensor_graphs.execution.isolation.server"
    code = f"import sys, {server}; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_runs_as_here(isolated):
    model = parsed(RELU)
    program = isolated.open(model)
    assert program.run(X)["y"].tolist() == [0, 2]
    assert program.timer(X)(3) > 0 and program.timer(X, bound=True)(3) > 0
    optimised, plain = isolated.rewritten(model)
    assert plain.name == "onnxruntime-disable" and optimised.graph.node[0].op_type == "Relu"
    assert (isolated.name, isolated.fuses) == ("onnxruntime", True)


def test_what_is_refused_is_one_line(isolated, tmp_path):
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(UserError, match=r"onnxruntime cannot load .*empty\.onnx"):
        isolated.open(tmp_path / "empty.onnx")
    with pytest.raises(UserError, match="cannot load model 'g'.*Nonsense") as caught:
        isolated.open(parsed("g (float[n] x) => (float[n] y) { y = Nonsense(x) }"))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot run the model"):
        isolated.open(parsed(RELU)).run({"z": X["x"]})


def test_a_crash_is_one_line_and_programs_go_on(isolated):
    """A model opened before the crash is opened again in the next process."""
    program, model = isolated.open(parsed(RELU)), crashing()
    program.run(X)
    inputs = {"x": np.zeros((2, 7), np.float32)}
    with pytest.raises(CrashError, match="^onnxruntime was ended by SIG.* ran model 'g'$"):
        isolated.open(model).run(inputs)
    assert program.run(X)["y"].tolist() == [0, 2]
    assert program.timer(X)(1) > 0


@pytest.mark.parametrize(("threads", "shares"), [(1, True), (2, False)])
def test_models_that_run_in_turns_share_a_processor(threads, shares):
    """Unless each runs on several; what another process runs stays where it was."""
    everywhere = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        fresh = [
            stack.enter_context(alone(Isolated(backend("onnxruntime", threads)))) for _ in "abc"
        ]
        programs = [lent.open(parsed(RELU)) for lent in fresh]
        run_on_one_processor(fresh[:2])
        first, second, bystander = (processors_of(lent.process.pid) for lent in fresh)
        assert first == second and (len(first) == 1) == (shares or len(everywhere) == 1)
        assert bystander == os.sched_getaffinity(0) == everywhere
        assert all(program.timer(X)(1) > 0 for program in programs)
    run_on_one_processor([fresh[0], backend()])
    assert os.sched_getaffinity(0) == everywhere


def processors_of(pid: int) -> set[int]:
    """The processors that any thread of a process may run on."""
    allowed = (os.sched_getaffinity(thread.id) for thread in psutil.Process(pid).threads())
    return set.union(*allowed)


def test_an_interrupted_question_leaves_no_answer_behind(isolated, monkeypatch):
    program = isolated.open(parsed(RELU))
    with monkeypatch.context() as patch:
        patch.setattr(wire, "receive", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            program.run({"x": np.float32([7])})
    assert program.run(X)["y"].tolist() == [0, 2]


def test_a_process_of_its_own_ends_afterwards(isolated):
    before = set(psutil.Process().children())
    with alone(isolated) as fresh:
        assert fresh.open(parsed(RELU)).run(X)["y"].tolist() == [0, 2]
        (started,) = set(psutil.Process().children()) - before
    assert not started.is_running()
    with alone(backend()) as same:
        assert same == backend()


def test_what_takes_too_long_is_ended_and_the_next_request_is_answered():
    """onnx's Resize visits each number of an image, which takes minutes here."""
    resize = parsed(
        """g (float[1,32,64,64] x) => (float[1,32,256,256] y) <float[4] s = {1, 1, 4, 4}>
        { y = Resize <mode = "linear"> (x, , s) }"""
    )
    began_s = time.monotonic()
    with pytest.raises(CrashError, match="^onnx's reference implementation took too long$"):
        evaluate(resize, {"x": np.zeros((1, 32, 64, 64), np.float32)}, within_s=1.0)
    assert time.monotonic() - began_s < 30
    (y,) = evaluate(parsed(RELU), X, within_s=60)
    assert y.tolist() == [0, 2]
