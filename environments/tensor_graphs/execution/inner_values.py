"""Inner values of a model, as runs show them, and the types of those that no inference knows."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.isolation import guardian
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import OPAQUE, Dimension, Ref, TensorType
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.onnx_io.header import UNKNOWN, value_info
from environments.tensor_graphs.onnx_io.tensors import NUMBERS

_ONNX_DOMAINS = ("", "ai.onnx")

Run = tuple[Mapping[str, int], Arrays]
"""The numbers of open sizes, by name in the graph, and inputs of these sizes."""


def run_exposed(graph: Graph, refs: Sequence[Ref], inputs: Arrays, on: Backend) -> list[Any] | None:
    """Return inner values of a run; None if the model does not run with them as outputs too."""
    names = [f"tfrl_inner_{number}" for number in range(len(refs))]
    edit = graph.edit()
    edit.set_outputs([*graph.outputs, *refs], [*graph.output_names, *names])
    exposed, _ = edit.finish()
    exposed.header = graph.header
    with guardian.make_directory() as directory:
        path = pathlib.Path(directory) / "exposed.onnx"
        try:
            save(exposed, path)
            outputs = on.open(path).run(inputs)
        except UserError:
            return None
    return [outputs[name] for name in names]


def of_unknown_type(graph: Graph) -> list[Ref]:
    """Return the values of unknown rank that nodes use, of operators that are not ONNX's own.

    ONNX leaves the rank of its own operators' values open where it depends on the inputs' values.
    """
    return [
        Ref(number, output)
        for number in graph.order()
        if graph.nodes[number].op == OPAQUE and _is_foreign(graph, number)
        for output, kind in enumerate(graph.nodes[number].types)
        if (kind is None or kind.shape is None) and _is_used(graph, Ref(number, output))
    ]


def learned_types(graph: Graph, runs: Sequence[Run], on: Backend) -> list[onnx.ValueInfoProto]:
    """Return the types of the values `of_unknown_type`, as `onnx_io.read` takes them.

    A size that is the same in all runs is taken for fixed, and one that always has the number of an
    open size for that. So each open size must differ between two of the runs.
    """
    refs = of_unknown_type(graph)
    assert graph.header is not None
    values_of_runs = []
    for _, inputs in runs if refs else ():
        values = run_exposed(graph, refs, inputs, on)
        if values is None:
            return []
        values_of_runs.append(values)
    infos = []
    for ref, arrays in zip(refs, zip(*values_of_runs, strict=True), strict=False):
        kind = _type_of(arrays, [numbers for numbers, _ in runs])
        name = graph.header.value_names.get(ref)
        if kind is not None and name is not None:
            infos.append(value_info(name, kind, graph.header.dimensions))
    return infos


def _is_foreign(graph: Graph, number: int) -> bool:
    domain, _, _ = graph.nodes[number].attribute("operator").rpartition(":")
    return domain not in _ONNX_DOMAINS


def _is_used(graph: Graph, ref: Ref) -> bool:
    return any(ref in graph.nodes[user].inputs for user in graph.users(ref.node))


def _type_of(arrays: Sequence[Any], numbers: Sequence[Mapping[str, int]]) -> TensorType | None:
    """Return the type of a value from what it was in each run; None if it is no tensor."""
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return None
    dtype = "str" if arrays[0].dtype == object else arrays[0].dtype.name
    if dtype not in NUMBERS or len({array.ndim for array in arrays}) != 1:
        return None
    shapes = zip(*(array.shape for array in arrays), strict=True)
    return TensorType(dtype, tuple(_size_of(sizes, numbers) for sizes in shapes))


def _size_of(sizes: tuple[int, ...], numbers: Sequence[Mapping[str, int]]) -> Dimension:
    if len(set(sizes)) == 1:
        return sizes[0]
    names = (name for name in numbers[0] if sizes == tuple(run[name] for run in numbers))
    return next(names, UNKNOWN)
