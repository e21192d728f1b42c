"""Many modules on several compilers: the same result however many, and nothing compiled twice."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

from environments.errors import UserError
from environments.inlining.collection import Collector, Failure, play
from environments.inlining.compilation import CompilerError
from environments.inlining.compilers import EmbeddedLlvm
from environments.inlining.corpus import Module
from environments.inlining.heuristics import Constant, CostBelow, Default, Random, Replay
from environments.inlining.trajectories import Trajectory, TrajectoryStore
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    NO_CALL_SITES,
    many_calls,
    write_module,
)


class Counting(EmbeddedLlvm):
    """Counts its compiles, and dies in those that it is told to."""

    def __init__(self, num_deaths: int = 0) -> None:
        super().__init__(timeout_s=60)
        self.num_compiles = 0
        self._num_deaths = num_deaths

    def compile(self, module):
        self.num_compiles += 1
        compilation = super().compile(module)
        if self._num_deaths:
            self._num_deaths -= 1
            compilation._backend.process.send_signal(signal.SIGKILL)
        return compilation


@pytest.fixture
def modules(tmp_path):
    irs = {"hand": HAND_WORKED, "none": NO_CALL_SITES, "few": many_calls(3), "many": many_calls(9)}
    return [write_module(tmp_path, name, ir) for name, ir in irs.items()]


@pytest.fixture
def counting():
    compiler = Counting()
    assert compiler.announced
    yield compiler
    compiler.close()


def test_an_episode(counting, modules):
    episode = play(counting, modules[0], Default(), TrajectoryStore())
    assert episode.decisions.tolist() == HAND_WORKED_DEFAULT
    assert episode.features.shape == (5, len(episode.names))
    assert episode.column("inlining_default").tolist() == HAND_WORKED_DEFAULT
    assert episode.size == counting.compile_plain(modules[0])


def test_nothing_is_compiled_twice(counting, modules, tmp_path):
    store = TrajectoryStore(tmp_path / "cache.sqlite")
    first = [play(counting, module, Default(), store) for module in modules]
    assert counting.num_compiles == 4
    # The same policy, one that decides the same, and the same again from the file.
    again = [play(counting, module, Default(), store) for module in modules]
    same = [play(counting, module, CostBelow(5), store) for module in modules]
    store.close()
    store = TrajectoryStore(tmp_path / "cache.sqlite")
    reopened = [play(counting, module, Default(), store) for module in modules]
    assert counting.num_compiles == 4
    for others in (again, same, reopened):
        for one, other in zip(first, others, strict=True):
            assert np.array_equal(one.features, other.features) and one.size == other.size
    # A file that has another name and the same bytes is the same module.
    copy = Module("copy", modules[0].path, ".", "c")
    assert play(counting, copy, Default(), store).module == "copy"
    assert counting.num_compiles == 4


def test_recalled_and_compiled_are_the_same(counting, modules):
    module, store = modules[3], TrajectoryStore()
    compiled = [play(counting, module, Random(seed), store) for seed in range(6)]
    for one in compiled:
        fresh = play(counting, module, Replay(one.decisions), TrajectoryStore())
        recalled = play(counting, module, Replay(one.decisions), store)
        for other in (fresh, recalled):
            assert np.array_equal(one.features, other.features) and one.size == other.size
            assert np.array_equal(one.decisions, other.decisions)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_results_do_not_depend_on_the_number_of_workers(modules, num_workers):
    with Collector(EmbeddedLlvm, TrajectoryStore(), num_workers) as collector:
        counted = []
        played = collector.play(modules * 2, Random(5), counted.append)
        alone = [play(collector.compiler, one, Random(5), TrajectoryStore()) for one in modules]
    assert len(counted) == 8 and sum(counted) == 8
    for one, other in zip(played, alone * 2, strict=True):
        assert one.module == other.module and one.size == other.size
        assert np.array_equal(one.features, other.features)


def test_a_compiler_that_dies_once_is_tried_again(modules):
    with Collector(lambda: Counting(num_deaths=1), TrajectoryStore()) as collector:
        played = collector.play(modules, Default())
        assert all(isinstance(one, Trajectory) for one in played)
        assert collector.compiler.num_compiles == len(modules) + 1


def test_what_fails_every_time_is_named_and_the_rest_goes_on(modules, tmp_path):
    broken = Module("broken", tmp_path / "broken.bc", ".", "c")
    broken.path.write_bytes(modules[0].path.read_bytes()[:200])
    missing = Module("missing", tmp_path / "missing.bc", ".", "c")
    with Collector(EmbeddedLlvm, TrajectoryStore(), num_workers=2) as collector:
        played = collector.play([broken, modules[0], missing, modules[1]], Constant(0))
    assert [type(one) for one in played] == [Failure, Trajectory, Failure, Trajectory]
    assert [played[0].module, played[2].module] == ["broken", "missing"]
    for failure in (played[0], played[2]):
        assert failure.message.startswith(f"{failure.module}: expected")
        assert "\n" not in failure.message


def test_a_mistake_of_the_user_ends_the_run(modules):
    def act(compiler, module):
        raise UserError("cache: full")

    collector = Collector(EmbeddedLlvm, TrajectoryStore())
    with collector, pytest.raises(UserError, match="cache: full"):
        collector.map(act, modules, lambda module: module.name)


def test_tasks_that_have_not_begun_by_the_deadline_are_left_out(modules):
    with Collector(EmbeddedLlvm, TrajectoryStore()) as collector:
        done = collector.map(
            lambda compiler, module: time.sleep(0.3) or module.name,
            modules,
            lambda module: module.name,
            deadline_s=time.monotonic() + 0.45,
        )
    assert done == ["hand", "none"]


def test_closing_ends_what_is_at_work(modules):
    began = []

    def hang(compiler, module):
        with compiler.compile(module) as compilation:
            compilation.next_site()
            began.append(compilation._backend.process)
            compilation.next_site()  # unanswered: LLVM waits for ever
        raise CompilerError("not reached")

    collector = Collector(EmbeddedLlvm, TrajectoryStore(), num_workers=2)
    futures = [
        collector._pool.submit(collector._attempt, hang, modules[index], "m") for index in (0, 2, 3)
    ]
    while len(began) < 2:
        time.sleep(0.01)
    collector.close()
    assert all(process.poll() is not None for process in began)
    assert all("was stopped" in future.result().message for future in futures[:2])
    assert futures[2].cancelled() or "was stopped" in futures[2].result().message
