"""Sizes that a user leaves open are chosen so that the model runs."""

from __future__ import annotations

import pytest

from environments.errors import UsageError, UserError
from environments.tensor_graphs.execution.choosing import MOST_POINTS, choose
from environments.tensor_graphs.execution.inputs import NoInputsError
from tests.environments.tensor_graphs.execution.models import open_sizes


def chosen(sizes, requested=None, accept=lambda _: True, **others):
    """Choose sizes for a model that runs where `accept` says so; return the points as dicts."""

    def why_not(point):
        return "" if accept(point.to_json()) else "no"

    return choose(sizes, requested or {}, why_not, "m", **others)


def points(choice):
    return [point.to_json() for point in choice.points]


def test_a_batch_is_1_and_others_are_usual_sizes_with_half_and_double():
    choice = chosen(open_sizes(x=["?", 3, "h", "w"]))
    assert points(choice) == [
        {"?": 1, "h": 256, "w": 256},
        {"?": 1, "h": 128, "w": 128},
        {"?": 2, "h": 512, "w": 512},
    ]
    assert choice.chosen == ("?", "h", "w")


def test_sizes_that_work_are_found_by_trying():
    """A height of up to 48, as in a text recogniser; half of it does not run."""
    choice = chosen(
        open_sizes(x=["N", 3, "h", "w"]), accept=lambda at: at["h"] == 48 and at["N"] == 1
    )
    assert points(choice) == [
        {"N": 1, "h": 48, "w": 256},
        {"N": 1, "h": 48, "w": 128},
        {"N": 1, "h": 48, "w": 512},
    ]
    audio = chosen(open_sizes(x=["batch", "sequence"]), accept=lambda at: at["sequence"] == 576)
    assert points(audio) == [{"batch": 1, "sequence": 576}, {"batch": 2, "sequence": 576}]


def test_the_sizes_of_weights_are_tried_too():
    sizes = open_sizes(x=["n", "features"])
    choice = chosen(sizes, accept=lambda at: at["features"] == 771, hints=[771])
    assert points(choice)[0] == {"n": 1, "features": 771}


def test_given_sizes_are_combined_and_nothing_is_added_to_them():
    choice = chosen(open_sizes(x=["n", "w"]), {"w": (8, 4), "x[0]": (2, 1)})
    first, *others = [(point["n"], point["w"]) for point in points(choice)]
    assert first == (2, 8) and set(others) == {(2, 4), (1, 8), (1, 4)}
    assert choice.chosen == ()


def test_given_sizes_are_completed():
    choice = chosen(open_sizes(x=["n", "w"]), {"w": (8, 4)})
    assert points(choice)[:2] == [{"n": 1, "w": 8}, {"n": 1, "w": 4}]
    assert choice.chosen == ("n",)


def test_a_name_that_says_nothing_stands_for_all_sizes_that_have_it():
    sizes = open_sizes(x=["?", 3, "?"])
    assert points(chosen(sizes, {"?": (7,)})) == [{"x[0]": 7, "x[2]": 7}]
    assert points(chosen(sizes, {"?": (7,), "x[0]": (2,)})) == [{"x[0]": 2, "x[2]": 7}]


def test_sizes_of_the_users_inputs():
    sizes = open_sizes(x=["n", 3])
    own = [sizes.at({"n": size}) for size in (5, 6, 5)]
    assert points(chosen(sizes, own=own)) == [{"n": 5}, {"n": 6}]
    assert points(chosen(sizes, {"n": (8,)}, own=own)) == [{"n": 8}, {"n": 5}, {"n": 6}]


def test_sizes_that_cannot_be_used():
    sizes = open_sizes(x=["n", "w"])
    with pytest.raises(UserError, match="^m: .* inputs of m leave open; found n, w"):
        chosen(sizes, {"m": (8,)})
    with pytest.raises(UserError, match=r"m does not run at n=1, w=8 \(no\)"):
        chosen(sizes, {"n": (1,), "w": (8,)}, accept=lambda at: at["w"] != 8)
    with pytest.raises(UserError, match=r"m does not run at n=1, w=8 \(no\)"):
        chosen(sizes, {"n": (1,), "w": (4, 8)}, accept=lambda at: at["w"] != 8)
    with pytest.raises(NoInputsError, match="found none by trying .*give n, w, or inputs"):
        chosen(sizes, accept=lambda _: False)
    with pytest.raises(UsageError, match=f"up to {MOST_POINTS} combinations of sizes, found 16"):
        chosen(sizes, {"n": (1, 2, 3, 4), "w": (1, 2, 3, 4)})
