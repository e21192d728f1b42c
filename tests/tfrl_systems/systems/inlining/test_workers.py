"""Compilers in worker processes: the same results, from processes that know no TensorFlow."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from environments.errors import Failure, UserError
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import Play
from environments.inlining.corpus.modules import Corpus
from environments.inlining.exploration.explore import ExplorationConfig, Explore
from environments.inlining.heuristics import Default, Random
from tests.tfrl_systems.systems.inlining.module_tasks import Deadly, LookAround, Unwell
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.workers import make_collector


@pytest.fixture
def modules(corpus):
    return Corpus.load(corpus).modules


@pytest.fixture(scope="module")
def collectors():
    """With one compiler in this process, and with two in others; stores are given by the tests."""
    with (
        make_collector("embedded", TrajectoryStore(), Collect()) as alone,
        make_collector("embedded", TrajectoryStore(), Collect("pipes", 2)) as together,
    ):
        yield {1: alone, 2: together}


@pytest.fixture(autouse=True)
def fresh_stores(collectors):
    for collector in collectors.values():
        collector.store = TrajectoryStore()


def leaves(result):
    """All arrays and numbers of a trajectory, or of what exploring found."""
    if isinstance(result, Trajectory):
        return [result.features, result.decisions, *dataclasses.astuple(result.size)]
    return [*leaves(result.base), result.steps, result.deltas, *leaves(result.best)]


def assert_same(first, second):
    for left, right in zip(first, second, strict=True):
        for leaf, same in zip(leaves(left), leaves(right), strict=True):
            assert np.array_equal(leaf, same) and np.asarray(leaf).dtype == np.asarray(same).dtype


def test_results_do_not_depend_on_the_number_of_workers(collectors, modules, trained):
    policy = CallSitePolicy.load(trained / "policy")
    names = collectors[1].compiler.announced
    assert collectors[2].compiler.announced == names
    exploration = ExplorationConfig(num_rounds=3)
    for task in (Play(Random(3)), Play(policy), Explore(policy, exploration)):
        results = {number: collector.map(task, modules) for number, collector in collectors.items()}
        assert_same(results[1], results[2])
        # And recalled from the store of the other.
        shelves = [collectors[2].store, collectors[1].store]
        for collector, store in zip(collectors.values(), shelves, strict=True):
            collector.store = store
        assert_same(collectors[1].map(task, modules), results[1])


def test_workers_import_no_tensorflow(collectors, modules, trained):
    sightings = collectors[2].map(LookAround(CallSitePolicy.load(trained / "policy")), modules)
    assert os.getpid() not in {pid for pid, *_ in sightings}
    assert [names for _, *names in sightings] == [[]] * len(modules)


def test_a_module_that_kills_its_worker_is_named_and_the_rest_goes_on(collectors, modules):
    played = collectors[2].map(Deadly(Default()), modules)
    (failure,) = [result for result in played if isinstance(result, Failure)]
    message = "beta/more.cc: its worker was ended by SIGKILL (attempt 3 of 3)"
    assert failure == Failure("beta/more.cc", message)
    rest = [module for module in modules if module.name != failure.name]
    results = [result for result in played if result is not failure]
    assert_same(results, collectors[1].play(rest, Default()))


def test_a_mistake_of_the_user_ends_the_run_in_one_line(collectors, modules):
    with pytest.raises(UserError, match=r"^temporary files: expected room, found none$"):
        collectors[2].map(Unwell(Default()), modules)
    assert len(collectors[2].play(modules, Default())) == len(modules)
