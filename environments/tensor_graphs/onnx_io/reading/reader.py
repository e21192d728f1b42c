"""Read an ONNX model into a graph: node by node, each in its canonical form or as Opaque."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import onnx

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT
from environments.tensor_graphs.onnx_io.header import (
    ModelHeader,
    copy_field,
)
from environments.tensor_graphs.onnx_io.reading import loading
from environments.tensor_graphs.onnx_io.reading.graph_builder import GraphBuilder
from environments.tensor_graphs.onnx_io.reading.inference import infer_types, session_of
from environments.tensor_graphs.onnx_io.reading.nodes import NodeReader
from environments.tensor_graphs.onnx_io.reading.wiring import Wiring
from environments.tensor_graphs.onnx_io.tensors import DataPlace


def read(
    source: loading.Source,
    shapes: Mapping[str, Sequence[int]] | None = None,
    learned: Sequence[onnx.ValueInfoProto] = (),
) -> Graph:
    """Read a model into a graph.

    Operators of `operators.table.OPERATORS` get their canonical form; all others become Opaque
    nodes, which are written as they were. Dropout and Identity are left out. Shapes that the model
    computes are replaced by their values as far as these are known. The bodies of If, Loop and Scan
    become part of the graph (`bodies`). Its `header` keeps all the rest but training information.

    Args:
      source: a path, the content of a file, or a model. External data are found only with a path.
      shapes: shapes that inputs have from now on, by name, in the graph and in models written from
        it. What follows from them is folded. Without this, what is folded holds for all sizes that
        the file leaves open.
      learned: types of values that onnx and onnxruntime cannot infer, as runs have shown them.

    Raises:
      UserError: the source is not an ONNX model, or is damaged; or neither onnx nor onnxruntime
        takes it for valid; or an input cannot have the shape that `shapes` gives it.
    """
    model, place = loading.load(source)
    if shapes:
        model = loading.frozen(model, shapes)
    try:
        loading.check_versions(model, loading.name_of(source))
        return _graph_of(model, place, learned, is_strict=True)
    except UserError:
        is_file = isinstance(source, str | pathlib.Path) and not shapes
        if session_of(pathlib.Path(source) if is_file else model) is None:  # type: ignore[arg-type]
            raise
    return _graph_of(model, place, learned, is_strict=False)


def _graph_of(
    model: onnx.ModelProto,
    place: DataPlace | None,
    learned: Sequence[onnx.ValueInfoProto],
    is_strict: bool,
) -> Graph:
    wiring, builder = Wiring(model, place), GraphBuilder(model, place, is_strict)
    edit, names = builder.edit, builder.names
    # First, so that the sizes of inputs have the same names whatever is known of other values.
    input_types = [names.type_of(info.type) for info in wiring.inputs]
    reader = NodeReader(builder, wiring, infer_types(model, wiring, names, is_strict, learned))
    for info, input_type in zip(wiring.inputs, input_types, strict=True):
        attributes = (("name", info.name),)
        reader.name(edit.add(INPUT, [], attributes, [input_type]), info.name)
    reader.read()
    outputs = [output.name for output in model.graph.output]
    edit.set_outputs([reader.values[name] for name in outputs], outputs)
    graph, _ = edit.finish()
    graph.header = _header(builder, wiring)
    return graph


def _header(builder: GraphBuilder, wiring: Wiring) -> ModelHeader:
    shell = onnx.ModelProto()
    graph = builder.model.graph
    for field, value in builder.model.ListFields():
        # What trains the model speaks of weights and values that a rewritten one may not have.
        if field.name not in ("graph", "training_info"):
            copy_field(shell, field.name, value)
    left_out = ("node", "initializer", "sparse_initializer", "value_info", "input")
    for field, value in graph.ListFields():
        if field.name not in left_out:
            copy_field(shell.graph, field.name, value)
    shell.graph.input.extend(wiring.inputs)
    return ModelHeader(
        shell,
        builder.value_names,
        builder.nodes,
        frozenset(info.name for info in graph.value_info),
        wiring.defaults,
        builder.names.original,
    )
