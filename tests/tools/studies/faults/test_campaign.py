"""The campaign of faults: its checks can fail, and a small campaign finds nothing wrong."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from environments import files
from tools.studies.faults import striking
from tools.studies.faults.campaign import FAULTS, Faults, run_quietly, run_trial
from tools.studies.faults.runs import Record, Run
from tools.studies.faults.scenarios import Place, Scenario
from tools.studies.faults.striking import damage, strike

pytestmark = pytest.mark.usefixtures("default_signals")

# Stands for a command of tfrl: it goes on where it was killed, unless told to be careless.
PROGRAM = """
import os, pathlib, subprocess, sys, tempfile, time
out = pathlib.Path(sys.argv[1]); out.mkdir(exist_ok=True)
for number in range(8):
    if not (out / str(number)).exists():
        time.sleep(0.02)
        (out / "new").write_text(str(number))
        (out / "new").rename(out / str(number))
"""
# None calls `tempfile.gettempdir()`, which tries the directory with a file that a kill may leave.
CARELESS = {
    "": "",
    "process": "subprocess.Popen(['sleep', '60'], start_new_session=True)",
    "file": "tempfile.mkstemp(dir=os.environ['TMPDIR'])",
    "socket": "import socket; socket.socket(socket.AF_UNIX).bind(os.environ['TMPDIR'] + '/s')",
    "file of its own": "(out / 'unfinished').touch()",
    "differing end": "(out / '3').write_text('4')",
    "error": "sys.exit('no')",
}
SAYS = {
    "process": "process: sleep 60",
    "file": "file in TMPDIR: tmp",
    "socket": "socket in TMPDIR: s",
    "file of its own": "file: w/out/unfinished",
    "differing end": "3: ",
    "error": "status 1, no",
}


def scenario(careless: str) -> Scenario:
    def end(place: Place) -> dict[str, str]:
        return {path.name: files.sha256(path) for path in (place.work / "out").glob("[0-9]")}

    program = (sys.executable, "-S", "-c", PROGRAM + CARELESS[careless])
    return Scenario("numbers", print, "{work}/out", end, {}, ("kill",), program=program)


@pytest.fixture
def place(tmp_path):
    return lambda name: Place(tmp_path / name, tmp_path)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr("tools.studies.faults.runs.GRACE_S", 0.3)


@pytest.mark.parametrize("careless", CARELESS)
def test_what_is_left_or_differs_is_reported(careless, place):
    quiet = run_quietly(scenario(""), place("quiet"))
    assert len(quiet.end) == 8
    mark = place(f"run-{os.getpid()}")
    record = run_trial(scenario(careless), quiet, mark, 3, 0, {"kill"})
    wrong = record.failures + record.left
    assert [SAYS[careless] in text for text in wrong[:1]] == ([True] if careless else [])
    assert record.is_good is not bool(careless)
    assert not striking.find(str(mark.root))


def test_a_killed_command_is_started_again_and_counted(place):
    quiet = run_quietly(scenario(""), place("quiet"))
    for number in range(9):
        run = place(f"again-{number}-{os.getpid()}")
        record = run_trial(scenario(""), quiet, run, number, 0, {"kill"})
        assert record.is_good and record.starts == 1 + record.struck["kill"]
        if record.struck["kill"] > 1:
            return
    pytest.fail("no trial was struck twice")


def test_a_process_that_has_ended_cannot_be_struck(place):
    run = Run(scenario(""), place(f"ended-{os.getpid()}"), Record(0, "numbers"))
    head = run.start()
    process = psutil.Process(head.pid)
    killing = strike("kill_worker", process, np.random.default_rng(0))
    next(killing)
    head.wait()
    with pytest.raises(StopIteration, match="True"):
        next(killing)
    run.clean_up()
    with pytest.raises(psutil.NoSuchProcess):
        next(strike("kill_worker", process, np.random.default_rng(0)))


def test_a_hung_process_goes_on_if_nothing_replaces_it(place, monkeypatch):
    """It has not hit then; it has if someone kills the process that does not answer."""
    run = Run(scenario(""), place(f"hung-{os.getpid()}"), Record(0, "numbers"))
    for limit_s, replaces in ((0.0, False), (60.0, True)):
        monkeypatch.setattr("tools.studies.faults.striking._MAX_HANG_S", limit_s)
        head = run.start()
        hanging = strike("hang_worker", psutil.Process(head.pid), np.random.default_rng(0))
        if replaces:
            next(hanging)
            head.kill()
            head.wait()
        with pytest.raises(StopIteration, match=str(replaces)):
            next(hanging)
        head.wait()  # without end, had it not been continued
        run.clean_up()


def test_a_process_that_wrote_over_its_environment_is_found_by_its_files(place):
    """As Ray's agents do; an empty environment stands for theirs."""
    where = place(f"agent-{os.getpid()}")
    where.work.mkdir(parents=True)
    with (where.work / "agent.log").open("w") as log:
        for name, is_ours in (("ray::DashboardAgent", True), ("agent.py", False)):
            command = subprocess.Popen([name, "60"], executable="/bin/sleep", env={}, stdout=log)
            try:
                # The kernel shows the new name a moment after it has begun the program.
                while name not in pathlib.Path(f"/proc/{command.pid}/cmdline").read_text():
                    time.sleep(0.01)
                marked = striking.find(str(where.root))
                assert [process.pid for process, _ in marked] == [command.pid] * is_ours
                assert not any(agent.role for agent in marked)
            finally:
                command.kill()
                command.wait()


def test_damage_changes_one_file(place):
    where = place("damaged")
    where.work.mkdir(parents=True)
    (where.work / "one").write_bytes(bytes(9))
    assert damage("flip_bit", where.root, np.random.default_rng(0)) == "w/one"
    assert sum((where.work / "one").read_bytes()).bit_count() == 1
    assert damage("truncate_file", where.root, np.random.default_rng(0)) == "w/one"
    assert (where.work / "one").stat().st_size < 9


def test_trials_take_the_scenarios_in_turn():
    options = Faults(scenarios=("ppo", "es"), trials=3)
    assert [trial.name for trial in FAULTS.trials(options)] == ["0000-ppo", "0001-es", "0002-ppo"]
    (only,) = FAULTS.trials(Faults(scenarios=("ppo", "es"), only=7))
    assert only.about == {"scenario": "es", "number": 7, "seed": 0}


@pytest.mark.slow
def test_a_hundred_faults_and_nothing_is_lost(study):
    scenarios = [word for name in ("ppo", "corpus", "build") for word in ("--scenario", name)]
    status, text, records = study("faults", *scenarios, "--trials", 12, "--seed", 27)
    assert status == 0 and "| all | " in text, text
    struck = [sum(record["measured"]["struck"].values()) for record in records.values()]
    assert sum(struck) >= 100
