"""Models are compared on inputs from which a wrong one can be told."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import OpenSizes
from environments.tensor_graphs.execution.trials import Trial, make_trials
from tests.environments.tensor_graphs.execution.models import of_x, parsed, shifted_there_and_back


def trials_of(model, sizes=({"n": 4},), own=()):
    open_sizes = OpenSizes(onnx_io.read(model))
    points = [open_sizes.at(chosen) for chosen in sizes]
    reference = Reference(backend().open(model))
    return make_trials(model, reference, points, [own(open_sizes)] if own else [])


def test_random_numbers_at_each_of_the_sizes():
    model = of_x("{ y = Relu(x) }")
    trials = trials_of(model, [{"n": 4}, {"n": 2}, {"n": 8}])
    assert [trial.inputs["x"].shape for trial in trials.first] == [(4,)] * 3
    assert [trial.inputs["x"].shape for trial in trials.measured] == [(4,), (2,), (8,)]
    assert [trial.sizes.to_json() for trial in trials.measured] == [{"n": 4}, {"n": 2}, {"n": 8}]
    assert trials.note == ""


@pytest.mark.parametrize(
    ("model", "size", "note"),
    [
        # relu(x - 20) is 0 for normal numbers and those from 0 to 1, but not for those up to 255.
        (of_x("<float twenty = {20}> { d = Sub(x, twenty) y = Relu(d) }"), 4,
         "numbers from 0 to 255, since on normal numbers output 'y' is constant"),
        # The logarithm of a negative number is NaN.
        (of_x("{ y = Log(x) }"), 4,
         "numbers from 0 to 1, since on normal numbers output 'y' is not"),
        (of_x("{ y = Sub(x, x) }"), 4,
         "output 'y' is constant on all random inputs that were tried"),
        # Around 1e5, numbers are 1 / 128 apart: much for x of 1, little for x of 255. Only one
        # number in some 100,000 is so near the middle between two that its last digit counts.
        (shifted_there_and_back(1e5), 300_000,
         "numbers from 0 to 255, since on normal numbers output 'y' is rounding"),
    ],
)  # fmt: skip
def test_outputs_that_tell_nothing_are_answered_by_other_inputs(model, size, note):
    trials = trials_of(model, [{"n": size}])
    assert note in trials.note
    if "from 0 to" in note:
        assert all(trial.inputs["x"].min() >= 0 for trial in trials.first)
        assert all((trial.inputs["x"].max() > 20) == ("255" in note) for trial in trials.first)


def test_the_users_inputs_are_the_ones_to_measure():
    model = of_x("{ y = Relu(x) }")
    x = np.arange(2, dtype=np.float32)

    def own(sizes):
        return Trial(sizes.at({"n": 2}), {"x": x})

    assert trials_of(model, [{"n": 4}, {"n": 2}], own).measured[1].inputs["x"] is x
    trials = trials_of(model, [{"n": 2}], own)
    assert len(trials.first) == 4 and trials.measured[0].inputs["x"] is x


def test_texts_need_the_users_inputs():
    model = parsed("g (string[2] x) => (string[2] y) { y = Identity(x) }")
    with pytest.raises(NoInputsError, match="give inputs"):
        trials_of(model, [{}])
    x = np.array(["a", "b"], object)
    trials = trials_of(model, [{}], own=lambda sizes: Trial(sizes.at({}), {"x": x}))
    assert [trial.inputs["x"] is x for trial in trials.first] == [True]


def special_of(text, **sizes):
    model = parsed(text)
    graph = onnx_io.read(model)
    open_sizes = OpenSizes(graph)
    point, precise = open_sizes.at(sizes), Precise(graph)
    reference = Reference(backend().open(model))
    return make_trials(model, reference, [point], precise=precise, edges=open_sizes.edges(point))


def test_special_inputs_are_those_on_which_the_model_runs():
    """At n = 0 there is no first row to take; near 100, and with large integers, there is."""
    text = """g (float[n] x, int64[n] i) => (float[n] y) <float far = {100}, int64 zero = {0}>
        { c = Sub(x, far) f = Gather(i, zero) g = Cast <to = 1> (f) y = Mul(c, g) }"""
    trials = special_of(text, n=3)
    shapes = {(trial.inputs["x"].shape, trial.inputs["i"].shape) for trial in trials.special}
    assert ((1,), (1,)) in shapes and ((0,), (0,)) not in shapes
    assert sum(np.abs(trial.inputs["x"] - 100).max() < 10 for trial in trials.special) == 2
    assert max(np.abs(trial.inputs["i"]).max() for trial in trials.special) > 2**40
    assert trials.compared == (*trials.special, *trials.first) and trials.unseen == ()
    unseen = """g (float[2] x) => (float[2] y, float[2] z) <float minus = {-1}>
        { a = Sqrt(minus) y = Mul(x, a) z = Sqrt(x) }"""
    assert special_of(unseen).unseen == ("y",)
