"""What measured slower is left out, and the rest still applies."""

from __future__ import annotations

import onnx
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.execution.trials import Trial, Trials
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.language.notation import op, rule
from environments.tensor_graphs.search import Visited
from environments.tensor_graphs.selection import contributions
from environments.tensor_graphs.selection.candidates import Candidate, Measurement, Row
from environments.tensor_graphs.selection.leaving_out import LeavingOut, replay_without
from environments.tensor_graphs.selection.selection import Selection, Selector
from tests.environments.tensor_graphs.execution.models import parsed
from tests.environments.tensor_graphs.search.fakes import ops_of
from tests.environments.tensor_graphs.selection.fakes import bench_of, compared
from tests.environments.tensor_graphs.small_models import write

ON = backend()


@rule
def roundabout(x):
    """Right, but three operators instead of one."""
    return op.Relu(x), op.Relu(x + x) * 0.5


@rule
def subtracted(x, y):
    return op.Neg(x) + y, y - x


@rule
def turned(x, y):
    return y - x, op.Neg(x - y)


@rule
def negative_twice(x):
    return op.Neg(op.Neg(x)), x


RULES = (roundabout, subtracted, turned, negative_twice)


MODEL = parsed(
    """g (float[4] x, float[4] y) => (float[4] z)
    { a = Relu(x) b = Neg(a) c = Add(b, y) d = Neg(c) e = Neg(d) z = Abs(e) }"""
)


def walk(path, *names):
    """Apply the rules in turn, each at its first match."""
    state = Visited(Engine(RULES, AnalyticObjective()).start(onnx_io.read(path)))
    for name in names:
        match = next(place for place in state.state.matches if place.rule == name)
        state = Visited(state.state.apply(match), state, match)
    return state


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "m.onnx", MODEL)


@pytest.mark.parametrize(
    ("names", "place", "rules", "ops"),
    [
        # `turned` applies to a node that `subtracted` made, which now has another number.
        (["roundabout", "subtracted", "turned", "negative_twice"], 0,
         ["subtracted", "turned", "negative_twice"], ["Relu", "Sub", "Neg", "Abs"]),
        # Without `subtracted` there is no difference to turn.
        (["subtracted", "negative_twice", "turned"], 0,
         ["negative_twice"], ["Relu", "Neg", "Add", "Abs"]),
        # Turned twice, Neg(Neg(y - x)): the second time turns what the first one has made.
        (["subtracted", "turned", "turned"], 1,
         ["subtracted"], ["Relu", "Sub", "Neg", "Neg", "Abs"]),
        (["subtracted", "turned", "turned"], 2,
         ["subtracted", "turned"], ["Relu", "Sub", "Neg", "Neg", "Neg", "Abs"]),
    ],
)  # fmt: skip
def test_the_other_steps_are_taken_again_where_they_still_apply(names, place, rules, ops, path):
    visited = walk(path, *names)
    _, *states = visited.trail
    end = replay_without(visited, [states[place]])
    assert [step.rule for step in end.path] == rules
    assert ops_of(end.state.graph) == ops
    assert replay_without(visited, ()).path == visited.path


# How long a number of operators takes, where that is not as long as it should be.
ASYMMETRIC: dict[int, float] = {}


def length(file):
    """Each operator of a file takes as long, so six take 1.0, three 0.5."""
    number = len(onnx.load(file).graph.node)
    return ASYMMETRIC.get(number, number)


def compare(bench, model, **_):
    ratio = length(model) / length(bench.first)
    return compared(ratio, ratio - 0.001, ratio + 0.001)


CountingBench = bench_of(compare)


def leave_out(path, visited, tmp_path, monkeypatch):
    """Leave out from the graph where a path ends."""
    for module in ("selection", "leaving_out"):
        monkeypatch.setattr(f"environments.tensor_graphs.selection.{module}.Bench", CountingBench)
    trials = Trials((Trial(Sizes(), random_inputs(MODEL)),))
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "chosen.onnx"
    onnx_io.save(visited.state.graph, file)
    full = CountingBench(path).compare(file)
    rows = (Row(Sizes(), full),)
    chosen = Candidate(visited, file, None, "")
    before = Selection(chosen, "", (chosen,), Measurement(rows, full, ON.name, ON.name))
    selector = Selector(path, Reference(ON.open(path)), trials, [ON], 0.1)
    return before, *LeavingOut(selector, tmp_path).run(before)


def test_what_measured_slower_is_left_out(path, tmp_path, monkeypatch):
    """6 operators, then 4, then 3 as `negative_twice` and `subtracted` go on; 5 with the detour."""
    visited = walk(path, "negative_twice", "roundabout", "subtracted")
    _, selection, account = leave_out(path, visited, tmp_path, monkeypatch)
    assert account.left_out == (("roundabout",),) and account.needed == ()
    assert [step.rule for step in selection.chosen.visited.path] == ["negative_twice", "subtracted"]
    assert len(onnx.load(selection.chosen.path).graph.node) == 3
    assert selection.measurement.fully_optimised.ratio.value == pytest.approx(3 / 6)
    groups = contributions.contributions(selection.chosen.visited, account.measured)
    assert [group.measured_saving for group in groups] == pytest.approx([2 / 6, 1 / 6])
    assert selection.chosen.equivalence.is_equal and not any(group.is_slower for group in groups)


def test_what_a_later_step_needs_is_kept(path, tmp_path, monkeypatch):
    """After `subtracted`, of 5 operators, comes `negative_twice`, of 3; without it 4 remain.

    Let 5 operators take as long as 7: `subtracted` measures slower, but the others need it.
    """
    monkeypatch.setitem(ASYMMETRIC, 5, 7)
    visited = walk(path, "subtracted", "negative_twice")
    before, selection, account = leave_out(path, visited, tmp_path, monkeypatch)
    assert selection is before and account.left_out == ()
    (needed,) = account.needed
    assert needed.rules == ("subtracted",) and "takes 1.333" in needed.why


def test_what_is_left_must_be_as_fast(path, tmp_path, monkeypatch):
    """The last, long measurement decides."""

    def measured(_, candidate):
        full = compared(0.7, 0.69, 0.71)
        return candidate, Measurement((Row(Sizes(), full),), full, ON.name, ON.name)

    monkeypatch.setattr(Selector, "measure", measured)
    visited = walk(path, "negative_twice", "roundabout", "subtracted")
    # 5 operators, 0.833 of the time: what is left is said to take 0.7.
    _, selection, account = leave_out(path, visited, tmp_path, monkeypatch)
    assert account.left_out and selection.measurement.fully_optimised.ratio.value == 0.7
    monkeypatch.setitem(ASYMMETRIC, 5, 3.1)
    # Now 0.517: the detour is kept, though it measured slower on the way.
    before, selection, account = leave_out(path, visited, tmp_path / "again", monkeypatch)
    assert selection is before
