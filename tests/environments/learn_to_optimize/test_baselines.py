from __future__ import annotations

import sys

import numpy as np
import pytest

from environments.errors import UserError
from environments.learn_to_optimize.baselines import best_constant, make_baseline
from environments.learn_to_optimize.functions import make_objective
from environments.learn_to_optimize.references import reference_points, truth
from tests.environments.learn_to_optimize.test_references import errors

C = reference_points(1)


def test_ignoring_c_costs_where_the_minimum_moves():
    """Shifted sphere: errors (5.12 (x - m(c)))^2, symmetric in c, so that x = 0 is the best."""
    objective = make_objective("shifted_sphere")
    assert best_constant(objective) == pytest.approx([0], abs=1e-6)
    shift = np.sin(np.pi / 2 * C.ravel()) / 2
    mse = errors(objective, make_baseline("constant", objective)(C), C).mse
    assert mse == pytest.approx(np.mean((26.2144 * shift**2) ** 2))


@pytest.mark.parametrize("dimensions, free", [(2, 1), (3, 2)])
def test_no_other_constant_is_better(dimensions, free):
    """Of plain rosenbrock; where there are 441 c, it is sought with a part of them."""
    objective, c = make_objective("rosenbrock", dimensions, free), reference_points(free)
    best = best_constant(objective)

    def error(x: float) -> float:
        return errors(objective, np.full((len(c), 1), x), c).mse

    tried = [*np.linspace(-1, 1, 81), *(best - 1e-4), *(best + 1e-4)]
    assert all(error(best[0]) <= error(x) for x in tried)


@pytest.mark.parametrize("dimensions, free", [(2, 1), (4, 2)])
def test_scipy_solves_what_has_one_minimum(dimensions, free):
    objective = make_objective("shifted_sphere", dimensions, free)
    c = reference_points(free)[::20]
    assert make_baseline("scipy", objective)(c) == pytest.approx(truth(objective, c).x, abs=1e-4)


def test_cma_solves_what_has_many_minima():
    objective = make_objective("rotated_rosenbrock", 4, 2)
    c = reference_points(2)[[50]]
    assert errors(objective, make_baseline("cma", objective)(c), c).mse < 1e-9


@pytest.mark.parametrize("name", ["random", "cma"])
def test_chance_is_of_its_seed(name):
    objective, c = make_objective("shifted_sphere", 3, 1), C[[5]]
    x, same, reseeded = (make_baseline(name, objective, seed)(c) for seed in (1, 1, 2))
    assert x.shape == (1, 2) and np.array_equal(x, same) and not np.array_equal(x, reseeded)


def test_what_cannot_be_made(monkeypatch):
    for name, message in (
        ("grid", "expected one of random, constant, scipy, cma, found 'grid'"),
        ("cma", "expected 2 tuned coordinates or more, found 1; take scipy"),
    ):
        with pytest.raises(UserError, match=message):
            make_baseline(name, make_objective("sphere"))
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(UserError, match=r"install it with: pip install 'tfrl-systems\[cma\]'"):
        make_baseline("cma", make_objective("sphere", 4, 1))
