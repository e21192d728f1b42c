"""The model as it was given: what is learned of it once there are sizes at which it runs."""

from __future__ import annotations

import onnx

from tests.environments.tensor_graphs.execution.test_inner_values import SCALED
from tests.environments.tensor_graphs.search.fakes import ops_of
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
