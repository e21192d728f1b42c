"""The model as it was given: what is learned of it once there are sizes at which it runs."""

from __future__ import annotations

import onnx
import pytest

from environments import machine
from environments.tensor_graphs.execution.reference import Reference
from tests.environments.tensor_graphs.execution.test_inner_values import SCALED
from tests.environments.tensor_graphs.search.fakes import ops_of
from tests.environments.tensor_graphs.small_models import relu
from tfrl_systems.systems.tensor_graphs.original import Original, levels_of


def test_choosing_sizes_shows_what_types_hid_and_freezing_keeps_it():
    model = onnx.parser.parse_model(SCALED.format(size="?"))
    original = Original("scaled", model, levels_of("onnxruntime"))
    choice = original.choose({"x[0]": (3,)})
    assert ops_of(original.graph) == ["Opaque", "Transpose", "Transpose"]
    # The sizes that were chosen before are those of the graph that was read after.
    (number,) = original.graph.inputs
    (kind,) = original.graph.nodes[number].types
    assert [choice.points[0].value(size) for size in kind.shape] == [3, 2]
    original.freeze(choice.points[0])
    assert ops_of(original.graph) == ["Opaque", "Transpose", "Transpose"]


@pytest.mark.parametrize(("run_s", "is_ahead"), [(1.0, True), (1e-6, False)])
def test_float64_is_computed_elsewhere_where_it_takes_long(run_s, is_ahead, monkeypatch):
    """A model whose run takes a second; the inputs are those that candidates are compared on."""
    original = Original("relu", relu(), levels_of("onnxruntime"))
    trials = original.make_trials(original.choose({}))
    ahead = []
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(Reference, "run_s", lambda *_: run_s)
    monkeypatch.setattr(Reference, "compute_ahead", lambda *arguments: ahead.append(arguments[-1]))
    original.compute_ahead(trials)
    assert ahead == ([[trial.inputs for trial in trials.compared]] if is_ahead else [])
