"""Workers as processes: what they are started with, what they refuse, and that they always end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.checkout import environment
from tests.processes import wait_for_end, workers
from tfrl_systems.drivers.pipes import worker_main
from tfrl_systems.drivers.pipes.messages import Channel, pickled, unpickled

# A whole script, as a user writes it: no `if __name__ == "__main__"`, and a runner of its own.
SCRIPT = """
import os, subprocess, sys, time
from tests.tfrl_systems.drivers.runners import FAULTS
from tfrl_systems.drivers.collect import Collect, make_pool

class Answer:
    def __init__(self, number):
        self.number = number

class Runner:
    def load(self, data):
        pass
    def run(self, job):
        if job.number in FAULTS:
            child = subprocess.Popen(["sleep", "1000"])
            print(child.pid, file=open(os.environ["PIDS"], "a"), flush=True)
            FAULTS[job.number]()
        sys.stdout.write("a runner's own words\\n")  # at once: print writes twice, and both speak
        return Answer(2 * job.number)
    def close(self):
        pass

print("begun", flush=True)
with make_pool(Collect("pipes", 2), Runner) as pool:
    results = pool.map([Answer(number) for number in {numbers!r}])
    print(type(results[0]) is Answer, [one.number for one in results], flush=True)
"""


def start(tmp_path, *numbers):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(numbers=numbers))
    return subprocess.Popen(
        [sys.executable, script],
        env=environment(PIDS=tmp_path / "pids"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def at_work(tmp_path, parent):
    """Waits until both jobs have begun; their workers, and the processes that the runners began."""
    pids = tmp_path / "pids"
    deadline_s = time.monotonic() + 20
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert parent.poll() is None and time.monotonic() < deadline_s, parent.stderr.read()
        time.sleep(0.01)
    return [*workers(parent.pid), *(psutil.Process(int(pid)) for pid in pids.read_text().split())]


class Driver:
    """A driver and its replay buffer: its policy adds θ to the step's number, from 1 to 3."""

    def load(self, theta):
        self._theta = theta

    def run(self, episode):
        return [episode, *(self._theta + step for step in (1, 2, 3))]

    def close(self):
        pass


def test_the_worker_process_of_the_thesis_by_hand(monkeypatch):
    """Algorithm 5.5 of Mayer's thesis: receive θ, update the policy, run, send the trajectory.

    What is sent: initialization; then θ = 10 and the run of episode 7; then θ = 20 and episode 8.
    Beside the thesis each message is answered, so that an error does not wait for a trajectory.
    """
    monkeypatch.setattr("gc.freeze", lambda: None)
    mine, its = (Channel(end) for end in socket.socketpair())
    answers = []

    def call(head, value):
        mine.send(head, pickled(value))
        (is_error, _), payload = mine.receive()
        assert not is_error
        answers.append(unpickled(payload))

    def serve():
        with pytest.raises(EOFError):
            worker_main.serve(its)

    process = threading.Thread(target=serve)
    process.start()
    call((list(sys.path), os.environ.get("PYTHONPATH")), Driver)
    for version, theta, episode in ((1, 10, 7), (2, 20, 8)):
        call(("load", version), theta)
        call(("run", version), episode)
    mine.close()
    process.join(5)
    its.close()
    assert not process.is_alive()
    # start, θ, trajectory, θ, trajectory
    assert answers == [None, None, [7, 11, 12, 13], None, [8, 21, 22, 23]]


def test_a_script_without_a_guard_and_with_its_own_classes(tmp_path):
    parent = start(tmp_path, 21, 21)
    said, complaints = parent.communicate(timeout=30)
    # Once, so no worker ran the script; and what runners print is not among the results.
    assert said == "begun\nTrue [42, 42]\n"
    assert complaints == "a runner's own words\n" * 2


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("number", "fault"),
    [(signal.SIGKILL, "stop"), (signal.SIGINT, "hang"), (signal.SIGTERM, "hang")],
)
def test_whatever_ends_the_parent_ends_its_workers_and_their_children(tmp_path, number, fault):
    """Also what is stopped or in C; whoever looks for the parent's end cannot."""
    parent = start(tmp_path, "hang in C", fault)
    family = at_work(tmp_path, parent)
    assert len(family) == 4
    parent.send_signal(number)
    _, complaints = parent.communicate(timeout=20)
    wait_for_end(family)
    if number == signal.SIGINT:
        assert complaints.count("KeyboardInterrupt") == 1
        assert complaints.rstrip().endswith("KeyboardInterrupt")


def test_a_worker_whose_parent_ended_before_it_began():
    its, mine = socket.socketpair()
    life_its, life_mine = os.pipe()
    with its, mine:
        os.close(life_mine)
        late = subprocess.Popen(
            [sys.executable, "-m", worker_main.__name__, str(its.fileno()), str(life_its)],
            pass_fds=(its.fileno(), life_its),
            start_new_session=True,
        )
        os.close(life_its)
        assert late.wait(10) == -signal.SIGKILL
