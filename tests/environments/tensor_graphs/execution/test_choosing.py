"""Sizes that a user leaves open are chosen so that the model runs."""

from __future__ import annotations

import pytest

from environments.errors import UsageError, UserError
from environments.tensor_graphs.execution.choosing import MOST_POINTS, choose
from environments.tensor_graphs.execution.inputs import NoInputsError
from tests.environments.tensor_graphs.execution.models import open_sizes


def chosen(sizes, requested=None, accept=lambda _: True, **others):
    """Choose sizes for a model that runs where `accept` says so."""

    def why_not(point):
        return "" if accept(point.to_json()) else "no"

    return choose(sizes, requested or {}, why_not, "m", **others)


UNNAMED = open_sizes(x=["?", 3, "?"])
ONE = open_sizes(x=["n", 3])
TWO = open_sizes(x=["n", "w"])
OWN = [ONE.at({"n": size}) for size in (5, 6, 5)]


@pytest.mark.parametrize(
    ("sizes", "settings", "expected"),
    [
        # A batch is 1, and others are usual sizes, with half and double.
        (open_sizes(x=["?", 3, "h", "w"]), {},
         [{"?": n, "h": size, "w": size} for n, size in ((1, 256), (1, 128), (2, 512))]),
        # Sizes that work are found by trying; a text recogniser's half height does not run.
        (open_sizes(x=["N", 3, "h", "w"]),
         {"accept": lambda at: at["h"] == 48 and at["N"] == 1},
         [{"N": 1, "h": 48, "w": 256}, {"N": 1, "h": 48, "w": 128}, {"N": 1, "h": 48, "w": 512}]),
        (open_sizes(x=["batch", "sequence"]), {"accept": lambda at: at["sequence"] == 576},
         [{"batch": 1, "sequence": 576}, {"batch": 2, "sequence": 576}]),
        # The sizes of weights are tried too.
        (open_sizes(x=["n", "features"]),
         {"accept": lambda at: at["features"] == 771, "hints": [771]},
         [{"n": 1, "features": 771}, {"n": 2, "features": 771}]),
        # n is the first axis of images, and of states beside them; the second of texts.
        (open_sizes(x=["N", 3], state=[2, "N", 5]), {}, [{"N": 1}, {"N": 2}]),
        (open_sizes(ids=["b", "n"], mask=["b", "n"]), {},
         [{"b": 1, "n": 128}, {"b": 1, "n": 64}, {"b": 2, "n": 256}]),
        # A name that says nothing stands for all sizes that have it.
        (UNNAMED, {"requested": {"?": (7,)}}, [{"x[0]": 7, "x[2]": 7}]),
        (UNNAMED, {"requested": {"?": (7,), "x[0]": (2,)}}, [{"x[0]": 2, "x[2]": 7}]),
        # Sizes of the user's inputs.
        (ONE, {"own": OWN}, [{"n": 5}, {"n": 6}]),
        (ONE, {"requested": {"n": (8,)}, "own": OWN}, [{"n": 8}, {"n": 5}, {"n": 6}]),
        # Given sizes are combined, and nothing is added to them; else they are completed.
        (TWO, {"requested": {"w": (8, 4), "x[0]": (2, 1)}},
         [{"n": 2, "w": 8}, {"n": 1, "w": 8}, {"n": 2, "w": 4}, {"n": 1, "w": 4}]),
        (TWO, {"requested": {"w": (8, 4)}},
         [{"n": 1, "w": 8}, {"n": 1, "w": 4}, {"n": 2, "w": 8}]),
    ],
)  # fmt: skip
def test_chosen_sizes(sizes, settings, expected):
    choice = chosen(sizes, **settings)
    assert [point.to_json() for point in choice.points] == expected
    requested = settings.get("requested", {})
    names = {size.name for size in sizes.all if not size.names & requested.keys()}
    assert set(choice.chosen) == (set() if settings.get("own") else names)


def test_sizes_that_cannot_be_used():
    with pytest.raises(UserError, match="^m: .* inputs of m leave open; found n, w"):
        chosen(TWO, {"m": (8,)})
    for widths in ((8,), (4, 8)):
        with pytest.raises(UserError, match=r"m does not run at n=1, w=8 \(no\)"):
            chosen(TWO, {"n": (1,), "w": widths}, accept=lambda at: at["w"] != 8)
    with pytest.raises(NoInputsError, match="found none by trying .*give n, w, or inputs"):
        chosen(TWO, accept=lambda _: False)
    with pytest.raises(UsageError, match=f"up to {MOST_POINTS} combinations of sizes, found 16"):
        chosen(TWO, {"n": (1, 2, 3, 4), "w": (1, 2, 3, 4)})
