"""All searches: what they have in common."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from environments.errors import UserError
from environments.tensor_graphs.search import METHODS, Budget, replay, search
from environments.tensor_graphs.search.results import Visited
from tests.environments.tensor_graphs.search.fakes import HILL, LAYER, chain, ops_of, start_of


@pytest.mark.parametrize("method", ["taso", "beam", "regions"])
def test_a_step_that_saves_nothing_is_taken_for_what_it_makes_possible(method):
    start = start_of(chain(*LAYER))
    assert search(start, "greedy").best.cost_ms == start.cost_ms
    result = search(start, method)
    assert ops_of(result.best.graph) == ["Relu"] and result.stopped == "exhausted"


@pytest.mark.parametrize("method", METHODS)
def test_every_path_can_be_replayed(method):
    start = start_of(chain(*LAYER * 3, "Tanh"))
    result = search(start, method, Budget(expansions=300))
    again = replay(Visited(start), result.path)
    assert again.state.graph == result.best.graph
    assert result.expansions <= 300
    costs = [candidate.cost_ms for candidate in result.candidates]
    assert costs == sorted(set(costs)) and costs[0] == result.best.cost_ms


def test_an_unknown_method_is_named():
    with pytest.raises(UserError, match="expected one of regions, removal"):
        search(HILL, "magic")


def test_the_result_is_the_same_in_every_process():
    program = (
        "from tests.environments.tensor_graphs.search.test_search import *\n"
        "start = start_of(chain(*LAYER * 4, 'Tanh'))\n"
        "for method in METHODS:\n"
        "    result = search(start, method, Budget(expansions=200))\n"
        "    print(method, result.path, result.expansions, hash(result.best.graph))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
