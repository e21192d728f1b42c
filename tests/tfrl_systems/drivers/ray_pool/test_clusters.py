"""Clusters of several nodes on this machine: nodes join, and nodes are lost, while runs go on."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

from tests.requirements import NO_RAY

pytest.importorskip("ray", reason=NO_RAY)

from environments.errors import UserError
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls, write_corpus
from tests.environments.tensor_graphs.small_models import adapter, write
from tests.tfrl_systems.drivers.collecting import sha256
from tests.tfrl_systems.drivers.runners import Noise, Task
from tests.tfrl_systems.small_runs import GRAPHS
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect, make_pool, num_processors_at, shared
from tfrl_systems.drivers.requirements import Requirements

pytestmark = pytest.mark.slow

SAME = ("experience_sha256", "policy_sha256", "environment_steps")
STORE_BYTES = 100 << 20
# The nodes' temporary files; the fixture sets it.
TEMPORARY = ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, one_cluster):
    """A head that runs nothing, and two nodes."""
    from ray.cluster_utils import Cluster

    one_cluster.end()  # a process can be in one cluster at a time
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setattr(sys.modules[__name__], "TEMPORARY", str(tmp_path_factory.mktemp("node")))
        two_nodes = Cluster()
        two_nodes.add_node(num_cpus=0, object_store_memory=STORE_BYTES, include_dashboard=False)
        for _ in range(2):
            add_node(two_nodes)
        with shared(Collect("ray", address=two_nodes.address)):
            yield two_nodes
        two_nodes.shutdown()


def add_node(cluster, **variables):
    variables = {"TMPDIR": TEMPORARY, **variables}
    return cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, env_vars=variables)


def lose_node(cluster):
    """As if its machine were switched off."""
    cluster.remove_node(min(cluster.worker_nodes, key=id), allow_graceful=False)


class SlowNoise(Noise):
    def run(self, task: Task) -> np.ndarray:
        time.sleep(0.2)
        return super().run(task)


class Meeting(Noise):
    """Waits until all jobs run at the same time, each in a worker of its own.

    Args:
      directory: where jobs leave the names of their nodes; the first of all tries ends its worker.
      num_jobs: how many jobs meet.
    """

    def __init__(self, directory: pathlib.Path, num_jobs: int) -> None:
        super().__init__()
        self._directory, self._num_jobs = directory, num_jobs

    def run(self, task: Task) -> str:
        import ray

        node_id = ray.get_runtime_context().get_node_id()
        with contextlib.suppress(FileExistsError), (self._directory / "lost").open("x") as file:
            file.write(node_id)
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        (self._directory / f"job{task.seed}").touch()
        until_s = time.monotonic() + 90
        while len(list(self._directory.glob("job*"))) < self._num_jobs:
            assert time.monotonic() < until_s, "the others do not run"
            time.sleep(0.05)
        return node_id


def test_a_worker_that_is_lost_is_replaced_on_another_node(cluster, tmp_path):
    # The node may be lost too, and Ray not know it yet.
    make_runner = functools.partial(Meeting, tmp_path, 1)
    with make_pool(Collect("ray", 1, cluster.address), make_runner) as pool:
        (node_id,) = pool.map([Task(0)])
    nodes = {node.node_id for node in cluster.worker_nodes}
    assert {node_id, (tmp_path / "lost").read_text()} == nodes


def test_a_worker_that_is_lost_is_replaced_there_if_no_other_node_has_room(cluster, tmp_path):
    make_runner = functools.partial(Meeting, tmp_path, 4)
    with make_pool(Collect("ray", 4, cluster.address), make_runner) as pool:
        node_ids = pool.map([Task(seed) for seed in range(4)])
    nodes = [node.node_id for node in cluster.worker_nodes]
    assert sorted(node_ids) == sorted(2 * nodes)


def test_nodes_join_and_leave_while_jobs_run(cluster):
    runner = SlowNoise()
    runner.load(b"1")
    # Results of more than a megabyte are compressed.
    tasks = [Task(seed, size=4 if seed % 4 else 200_000) for seed in range(40)]
    numbers = []

    def on_result(number, result):
        numbers.append(number)
        if len(numbers) == 5:
            add_node(cluster)  # not in a thread: Ray sets a signal handler
        if len(numbers) == 10:
            lose_node(cluster)

    with make_pool(Collect("ray", 3, cluster.address), SlowNoise) as pool:
        pool.broadcast(b"1")
        results = pool.map(tasks, on_result)
    expected = [Noise.run(runner, task) for task in tasks]
    assert sha256(results) == sha256(expected)
    # Two nodes; Ray may count the lost one for some seconds more.
    assert num_processors_at(cluster.address) in (2, 3)


def test_a_process_is_in_one_cluster_at_a_time(cluster):
    with pytest.raises(UserError, match="the cluster that this process is in, found ''"):
        make_pool(Collect("ray"), Noise)


class Home(Noise):
    """Tells of the node that it is on."""

    def run(self, task: Task) -> str:
        time.sleep(0.1)
        return os.environ.get("HAS_CLANG", "22")


def clang_here():
    if (version := os.environ.get("HAS_CLANG", "22")) == "none":
        raise UserError("clang: expected a program, found none; install one")
    return f"clang {version}"


@pytest.mark.parametrize(
    "version, finding",
    [
        ("21", "clang 21; install there what is here"),
        ("none", "none (clang: expected a program, found none; install one)"),
    ],
)
def test_a_node_that_lacks_a_program_gets_no_work(version, finding, cluster, caplog, monkeypatch):
    needs = Requirements(programs={"clang-22": clang_here})
    collect = Collect("ray", 4, cluster.address)
    lacking = add_node(cluster, HAS_CLANG=version)
    line = f"expected clang-22 (clang 22), found {finding}"
    try:
        with make_pool(collect, Home, requirements=needs) as pool:
            assert pool.map([Task(seed) for seed in range(12)]) == ["22"] * 12
        (warning,) = [
            record.getMessage() for record in caplog.records if "clang-22" in record.getMessage()
        ]
        assert warning.startswith("node ") and warning.endswith(f": {line}")
    finally:
        cluster.remove_node(lacking, allow_graceful=False)
    # Now this process has another than all nodes.
    monkeypatch.setenv("HAS_CLANG", "23")
    with pytest.raises(
        UserError, match=r"^node .*: expected clang-22 \(clang 23\), found clang 22"
    ):
        make_pool(collect, Home, requirements=needs).map([Task(0)])


# One run of each system: which agent learns makes no difference to a pool.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor_graphs": ("ppo", {**GRAPHS, "iterations": 3, "num_chunks": 4}),
    "inlining": (
        "bc_max",
        {"iterations": 2, "num_models": 2, "epochs": 3, "hidden_sizes": (8,), "num_rounds": 2},
    ),
}


def train(system, workdir, collect, **problem):
    """Train what RUNS names; return what must be the same wherever it is collected."""
    agent, settings = RUNS[system]
    result = experiments.train(
        system,
        agent=agent,
        workdir=workdir,
        settings=settings,
        collect=collect,
        reporter=experiments.Reporter(),
        **problem,
    ).result
    return [result.get(key) for key in SAME]


@pytest.fixture
def hide():
    """Give a directory a path that only this process knows: that of an open file."""
    with contextlib.ExitStack() as end:

        def path_of(directory):
            opened = os.open(directory, os.O_RDONLY)
            end.callback(os.close, opened)
            number = fcntl.fcntl(opened, fcntl.F_DUPFD, 700)  # no other process opens so many
            end.callback(os.close, number)
            return pathlib.Path(f"/proc/self/fd/{number}")

        yield path_of


def check_copies(*names):
    """On the nodes there is one copy, and these files are in it."""
    (copies,) = pathlib.Path(TEMPORARY).glob("tfrl-copies-*")
    (copy,) = copies.iterdir()
    assert {path.name for path in copy.rglob("*") if path.is_file()} == set(names)


def test_a_run_is_the_same_though_the_nodes_lack_the_model(cluster, tmp_path, hide):
    write(tmp_path / "adapter.onnx", adapter())
    # A model's name is a part of the experience.
    problem = {"models": (str(hide(tmp_path) / "adapter.onnx"),), "objective": "analytic"}
    here = train("tensor_graphs", tmp_path / "here", Collect(), **problem)
    collect = Collect("ray", 2, cluster.address)
    assert train("tensor_graphs", tmp_path / "there", collect, **problem) == here
    check_copies("adapter.onnx")


def test_a_run_is_the_same_though_the_nodes_lack_the_corpus(cluster, tmp_path, hide):
    modules = {"alpha/hand.c": HAND_WORKED, "alpha/many.c": many_calls(12)}
    modules["beta/more.cc"] = many_calls(25)
    corpus = write_corpus(tmp_path / "corpus", modules)
    hidden = hide(tmp_path) / "corpus"
    results = [
        train("inlining", tmp_path / name, collect, corpus=place, cache=tmp_path / f"{name}.db")
        for name, collect, place in (
            ("here", Collect(), corpus),
            ("there", Collect("ray", 2, cluster.address), hidden),
        )
    ]
    assert results[0] == results[1]
    check_copies("hand.c.bc", "many.c.bc", "more.cc.bc")
