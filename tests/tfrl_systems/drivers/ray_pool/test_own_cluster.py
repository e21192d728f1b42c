"""The cluster that is started for a run may be lost: one line says so, and the run can go on."""

from __future__ import annotations

import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from tests.requirements import NO_RAY

pytest.importorskip("ray", reason=NO_RAY)

from tests.checkout import environment
from tests.processes import is_alive, unless_ended, wait_for_end
from tests.tfrl_systems.conftest import as_words
from tests.tfrl_systems.drivers.runners import Noise, Task
from tfrl_systems.cli.main import main
from tfrl_systems.drivers.collect import Collect, make_pool, shared
from tfrl_systems.drivers.jobs import PoolError

# The function is slow in workers only. With Ray the run takes about ten seconds.
RUN = ["train", "learn_to_optimize", "--agent", "ppo", "--json"]
RUN += ["--function", "tools.studies.functions:slow_sphere"]
RUN += as_words(iterations=16, checkpoint_every=2, evaluate_every=16, num_chunks=6)
RUN += as_words(episodes_per_chunk=8, hidden_sizes=8)
WITH_RAY = ["--collect", "ray", "--workers", "2"]
SAME = ("experience_sha256", "policy_sha256", "environment_steps")

LINE = (
    "collect: expected the Ray cluster that was started on this machine, found that its {} has "
    "ended; run the same command with --resume"
)
PROGRESS = ("slow_sphere: ", "iterations")
SLOW = pytest.mark.slow
HOLDER = "tfrl_systems.drivers.ray_pool.own_cluster"


@pytest.fixture(autouse=True)
def no_cluster(one_cluster):
    one_cluster.end()


def cluster_of(pid: int | None = None) -> list[psutil.Process]:
    """The processes of the cluster that a process has started; that which holds it comes first."""
    children = filter(is_alive, psutil.Process(pid).children())
    (holder,) = (child for child in children if HOLDER in unless_ended(child.cmdline, []))
    return [holder, *holder.children(recursive=True)]


def find(name: str, family: list[psutil.Process]) -> psutil.Process:
    """The process of the family that runs this program; for HOLDER the one that holds it."""
    if name == HOLDER:
        return family[0]
    (process,) = (member for member in family if unless_ended(member.name, "") == name)
    return process


def lose(name: str) -> list[psutil.Process]:
    """Kill a process of this process's cluster; return all of them."""
    family = cluster_of()
    lost = find(name, family)
    end = os.pidfd_open(lost.pid)
    lost.kill()
    # The last of its threads ends some moments after the first.
    assert select.select([end], [], [], 10)[0]
    os.close(end)
    return family


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("raylet", marks=pytest.mark.ci),
        pytest.param("gcs_server", marks=SLOW),
        pytest.param(HOLDER, marks=SLOW),
    ],
)
def test_a_lost_cluster_ends_all_pools_with_one_line(name, capfd):
    with shared(Collect("ray")), make_pool(Collect("ray", 2), Noise) as pool:
        pool.map([Task(seed) for seed in range(4)])
        family = lose(name)
        # Ray itself would end this process in one of these calls, or never return from it.
        lines = set()
        for use in (
            lambda: pool.broadcast(b"1"),
            lambda: pool.map([Task(0)]),
            lambda: make_pool(Collect("ray", 2), Noise),
        ):
            with pytest.raises(PoolError) as raised:
                use()
            lines.add(str(raised.value))
    # The others end with the program that holds them.
    names = ("raylet", "gcs_server", "holder") if name == HOLDER else (name,)
    assert lines <= {LINE.format(name) for name in names}
    wait_for_end(family)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_next_pool_has_another_cluster():
    for _ in range(2):
        with make_pool(Collect("ray"), Noise) as pool:
            assert len(pool.map([Task(0)])) == 1
            lose("raylet")
            with pytest.raises(PoolError):
                pool.map([Task(0)])


SCRIPT = """
import psutil, ray
from tfrl_systems.drivers.collect import Collect, shared

with shared(Collect("ray")):
    family = psutil.Process().children(recursive=True)
    (raylet,) = (process for process in family if process.name() == "raylet")
    raylet.kill()
    ray.put(b"1")
"""


@pytest.mark.slow
def test_a_loss_in_the_midst_of_a_call_is_told_too(tmp_path):
    """Ray then ends the process at once, and Python cannot say anything any more."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert (ended.stdout, ended.stderr) == ("", f"tfrl: {LINE.format('raylet')}\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_run_that_loses_its_cluster_goes_on_with_resume(name, tmp_path, capfd):
    assert main([*RUN, "--workdir", str(tmp_path / "here")]) == 0
    expected = json.loads(capfd.readouterr().out)

    workdir, temporary = tmp_path / "there", pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    variables = environment(TMPDIR=temporary)
    command = [sys.executable, "-P", "-m", "tfrl_systems.cli.main", *RUN, *WITH_RAY]
    command += ["--workdir", str(workdir)]
    run = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until_s = time.monotonic() + 300
        while not list(workdir.glob("checkpoints/*/sha256.json")):
            assert run.poll() is None and time.monotonic() < until_s
            time.sleep(0.05)
        family = cluster_of(run.pid)
        find(name, family).kill()
        out, said = run.communicate(timeout=60)
        assert (run.returncode, out) == (1, "")
        *progress, last = said.splitlines()
        assert last == f"tfrl: {LINE.format(name)}"
        assert not [line for line in progress if not any(own in line for own in PROGRESS)]
        wait_for_end(family)
        assert not list(temporary.glob("tfrl-*"))
        ended = subprocess.run(
            [*command, "--resume"], env=variables, capture_output=True, timeout=300, check=True
        )
        resumed = json.loads(ended.stdout)
        assert [resumed[key] for key in SAME] == [expected[key] for key in SAME]
        assert not list(temporary.glob("tfrl-*"))
    finally:
        run.kill()
        run.communicate()
        shutil.rmtree(temporary)
