"""Compute integers that nodes without a canonical form derive from short constants.

Exporters compute shapes with any operator (Mod, TopK, CumSum …). A shape that stays unknown makes
all that follows it Opaque, so onnxruntime, which folds such nodes too, runs them once. Weights that
are not integers stay what they are: quantised ones are to be kept so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import Ref, TensorType
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.reading.graph_builder import GraphBuilder
from environments.tensor_graphs.onnx_io.reading.inference import session_of
from environments.tensor_graphs.onnx_io.reading.shape_values import INTEGERS, MAX_ELEMENTS
from environments.tensor_graphs.onnx_io.tensors import to_tensor
from environments.tensor_graphs.operators.operator import num_elements

_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
)


def constants_of(
    builder: GraphBuilder,
    node: onnx.NodeProto,
    inputs: Sequence[Ref | None],
    types: Mapping[str, TensorType | None],
) -> dict[str, np.ndarray] | None:
    """Return what a node gives, by name; None if that depends on more than short constants.

    Args:
      builder: the graph that is being read.
      node: a node of one of ONNX's own operators.
      inputs: its inputs; None for those that are left out.
      types: the types of its outputs, as far as they are known.
    """
    names = [name for name in node.output if name]
    if not all(_is_short(types.get(name)) for name in names):
        return None
    if any(scopes.subgraphs(node)) or not inputs or node.op_type in _RANDOM:
        return None
    arrays = {}
    for name, ref in zip(node.input, inputs, strict=False):
        value = None if ref is None else builder.value_of(ref)
        if ref is not None and value is None:
            return None
        if value is not None:
            arrays[name] = value
    return _run(builder.model, node, names, arrays)


def _is_short(kind: TensorType | None) -> bool:
    """Whether values of a type are short lists of integers; what is longer is not even computed."""
    is_known = kind is not None and kind.is_static and kind.dtype in INTEGERS
    return is_known and num_elements(kind) <= MAX_ELEMENTS


def _run(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    names: Sequence[str],
    arrays: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray] | None:
    single = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    single.opset_import.extend(model.opset_import)
    single.graph.name = "node"
    single.graph.node.append(node)
    single.graph.initializer.extend(
        to_tensor(name, array, array.dtype.name) for name, array in arrays.items()
    )
    single.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = session_of(single)
    if session is None:
        return None
    try:
        outputs = session.run(names, {})
    except Exception:
        # onnxruntime's exceptions have no base class other than Exception.
        return None
    return dict(zip(names, outputs, strict=True))
