"""Many modules on several compilers: the same result however many, and nothing compiled twice."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.errors import Failure, UserError
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import Play
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Constant, CostBelow, Default
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    NO_CALL_SITES,
    UNREACHABLE_CALL_SITE,
    Lent,
    many_calls,
    play,
    write_module,
)


@pytest.fixture
def collect(counting):
    """Makes collectors."""
    return lambda store=None, make_pool=Pool: Collector(
        lambda: Lent(counting), store or TrajectoryStore(), make_pool
    )


@pytest.fixture
def modules(tmp_path):
    irs = {"hand": HAND_WORKED, "none": NO_CALL_SITES, "few": many_calls(3), "many": many_calls(9)}
    return [write_module(tmp_path, name, ir) for name, ir in irs.items()]


def test_nothing_is_compiled_twice(counting, modules, tmp_path):
    store = TrajectoryStore(tmp_path / "cache.sqlite")
    first = [play(counting, module, Default(), store) for module in modules]
    assert counting.num_compiles == 4
    assert first[0].decisions.tolist() == HAND_WORKED_DEFAULT
    assert first[0].features.shape == (5, len(first[0].names))
    assert first[0].column("inlining_default").tolist() == HAND_WORKED_DEFAULT
    # The same policy, one that decides the same, and the same again from the file.
    assert_same([play(counting, module, Default(), store) for module in modules], first)
    assert_same([play(counting, module, CostBelow(5), store) for module in modules], first)
    store.close()
    store = TrajectoryStore(tmp_path / "cache.sqlite")
    assert_same([play(counting, module, Default(), store) for module in modules], first)
    # A file that has another name and the same bytes is the same module.
    copy = Module("copy", modules[0].path, ".", "c")
    assert play(counting, copy, Default(), store).module == "copy"
    assert counting.num_compiles == 4


def assert_same(played, expected):
    for left, right in zip(played, expected, strict=True):
        assert left.module == right.module and left.size == right.size
        assert np.array_equal(left.features, right.features)
        assert np.array_equal(left.decisions, right.decisions)


class Pool:
    """One player; remembers what it was asked, and has its results in another order."""

    def __init__(self, make_player):
        self.requests = []
        self._player = make_player()

    def broadcast(self, data):
        self._player.load(data)

    def map(self, jobs, on_result):
        self.requests.append([module.name for module in jobs])
        for number in reversed(range(len(jobs))):
            on_result(number, self._player.run(jobs[number]))

    def close(self):
        self._player.close()


@dataclasses.dataclass(frozen=True)
class Fails(Play):
    """Plays, and raises an exception in one module."""

    module_name: str
    error: Exception

    def run(self, compiler, module):
        if module.name == self.module_name:
            raise self.error
        return super().run(compiler, module)


def test_the_default_has_the_sizes_of_plain_compiles(collect, counting, modules, tmp_path):
    apart = write_module(tmp_path, "apart", UNREACHABLE_CALL_SITE)
    damaged = Module("damaged", tmp_path / "missing.bc", ".", "c")
    store = TrajectoryStore(tmp_path / "cache.sqlite")
    with collect(store) as collector:
        hand, failure, plain = collector.play_default([modules[0], damaged, apart])
        (steered,) = collector.play([apart], Default())
    assert hand.size == counting.compile_plain(modules[0]).size and isinstance(failure, Failure)
    assert plain.size == counting.compile_plain(apart).size != steered.size
    assert np.array_equal(plain.decisions, steered.decisions)
    # The plain sizes are kept, and what was steered keeps its own.
    with collect(store, lambda _: pytest.fail("a pool is made")) as collector:
        assert [trajectory.size for trajectory in collector.play_default([apart])] == [plain.size]


def test_only_what_is_not_in_the_store_goes_to_the_pool(collect, modules):
    pools = []

    def make_pool(make_player):
        pools.append(Pool(make_player))
        return pools[-1]

    store = TrajectoryStore()
    with collect(store) as collector:
        first = collector.play(modules[:2], Default())
    with collect(store, make_pool) as collector:
        assert_same(collector.play(modules[:2], CostBelow(5)), first)
        assert not pools  # so that nothing is started
        counted = []
        played = collector.play(modules, Default(), counted.append)
        assert pools[0].requests == [["few", "many"]] and counted == [1] * 4
        assert_same(played[:2], first)
        assert [trajectory.module for trajectory in played] == ["hand", "none", "few", "many"]
        assert_same(collector.play(modules, Default()), played)
        assert len(pools) == len(pools[0].requests) == 1


def test_what_was_finished_before_an_interruption_is_kept(collect, counting, modules):
    store = TrajectoryStore()
    with collect(store) as collector, pytest.raises(KeyboardInterrupt):
        collector.map(Fails(Default(), "none", KeyboardInterrupt()), modules)
    counting.num_compiles = 0
    for module in modules:
        play(counting, module, Default(), store)
    assert counting.num_compiles == 2  # the pool had done the last two


def test_a_compiler_that_dies_once_is_tried_again(collect, counting, modules):
    counting.num_deaths = 1
    with collect() as collector:
        played = collector.play(modules, Default())
    assert all(isinstance(trajectory, Trajectory) for trajectory in played)
    assert counting.num_compiles == len(modules) + 1


def test_what_fails_every_time_is_named_and_the_rest_goes_on(collect, modules, tmp_path):
    broken = Module("broken", tmp_path / "broken.bc", ".", "c")
    broken.path.write_bytes(modules[0].path.read_bytes()[:200])
    missing = Module("missing", tmp_path / "missing.bc", ".", "c")
    counted = []
    with collect() as collector:
        played = collector.play(
            [broken, modules[0], missing, modules[1]], Constant(0), counted.append
        )
    assert [type(outcome) for outcome in played] == [Failure, Trajectory, Failure, Trajectory]
    assert [played[0].name, played[2].name] == ["broken", "missing"]
    assert counted == [1] * 4
    for failure in (played[0], played[2]):
        assert failure.message.startswith(f"{failure.name}: expected")
        assert "\n" not in failure.message


def test_a_mistake_of_the_user_ends_the_run(collect, modules):
    with collect() as collector:
        with pytest.raises(UserError, match="temporary files: full"):
            collector.map(Fails(Default(), "few", UserError("temporary files: full")), modules)
        # A compiler's failure is one of the module.
        failed = collector.map(Fails(Default(), "few", CompilerError("few: no")), modules)
    assert failed[2] == Failure("few", "few: no")
    assert [type(outcome) for outcome in failed].count(Trajectory) == 3
