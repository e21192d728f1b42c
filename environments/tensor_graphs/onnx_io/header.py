"""The header of a model: its names, versions and documentation, without its computation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import onnx

from environments.tensor_graphs.graph.nodes import Dimension, Ref, TensorType
from environments.tensor_graphs.onnx_io.tensors import DTYPES, NUMBERS

DEFAULT_OPSET = 17
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
# Files give these names to sizes that need not be equal.
_SAYS_NOTHING = re.compile(r"\W*|None|none|-\d+|dynamic|unknown|Unknown")
UNKNOWN = "unknown_"
"""Prefix of the names that are given to sizes without one."""


@dataclasses.dataclass(frozen=True, eq=False)
class ModelHeader:
    """The parts of a model's file that are kept in order to write a rewritten model.

    Attributes:
      shell: the model without nodes and initialisers.
      value_names: the file's names of values. Nodes that stay keep their numbers, so these names
        hold for all graphs that are made from the one that was read.
      nodes: names, documentation and metadata of nodes, by the node's number.
      described: the file's names of values whose types it gives.
      defaults: values of inputs that a caller may leave out, by the input's name.
      dimensions: the file's name for each name of a size in the graph, where the two differ.
    """

    shell: onnx.ModelProto
    value_names: Mapping[Ref, str] = dataclasses.field(default_factory=dict)
    nodes: Mapping[int, onnx.NodeProto] = dataclasses.field(default_factory=dict)
    described: frozenset[str] = frozenset()
    defaults: Mapping[str, onnx.TensorProto] = dataclasses.field(default_factory=dict)
    dimensions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators."""
        return opset_of(self.shell)


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model uses; 0 if it names none."""
    return opset_versions(model).get("", 0)


def opset_versions(model: onnx.ModelProto) -> dict[str, int]:
    """Return the versions of operators that a model uses, by domain; "" is ONNX's own.

    A domain that is named several times has the version that is named last, as for onnxruntime.
    """
    return {
        "" if opset.domain == "ai.onnx" else opset.domain: opset.version
        for opset in model.opset_import
    }


def make_header(opset: int = DEFAULT_OPSET) -> ModelHeader:
    """Make a header for a graph that comes from no file."""
    opsets = [onnx.helper.make_opsetid("", opset)]
    shell = onnx.ModelProto(ir_version=onnx.helper.find_min_ir_version_for(opsets))
    shell.opset_import.extend(opsets)
    shell.graph.name = "graph"
    return ModelHeader(shell)


def copy_field(target: Any, field: str, value: Any) -> None:
    """Copy a field of one message to another message of the same kind."""
    if isinstance(value, str | int):
        setattr(target, field, value)
    else:
        getattr(target, field).MergeFrom(value)


class DimensionNames:
    """Names for the sizes of a file's tensors that `operators.dimensions` can compute with.

    A name that is not an identifier is replaced, and a size without a name gets one.

    Attributes:
      original: the file's names by the ones that replace them.
    """

    def __init__(self) -> None:
        self.original: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._num_unknown = 0

    def unknown(self) -> str:
        """Make a name that no other size has."""
        self._num_unknown += 1
        return f"{UNKNOWN}{self._num_unknown}"

    def name_of(self, name: str) -> str:
        """Return the graph's name for a size by its name in the file.

        A name such as "?", which files give to sizes that differ, counts as none, like "".
        """
        if _SAYS_NOTHING.fullmatch(name):
            return self.unknown()
        if name not in self._known:
            plain = name
            if not _PLAIN_NAME.fullmatch(name) or name.startswith((UNKNOWN, "size_")):
                plain = f"size_{len(self.original)}"
                self.original[plain] = name
            self._known[name] = plain
        return self._known[name]

    def opened(self, kind: TensorType) -> TensorType:
        """Return a type in which each size without a name has got one."""
        if kind.shape is None:
            return kind
        shape = tuple(self.unknown() if size == UNKNOWN else size for size in kind.shape)
        return TensorType(kind.dtype, shape)

    def type_of(self, type_proto: onnx.TypeProto) -> TensorType | None:
        """Return the type that a file gives for a value; None if the value is not a tensor."""
        if type_proto.WhichOneof("value") != "tensor_type":
            return None
        tensor = type_proto.tensor_type
        if tensor.elem_type not in DTYPES:
            return None
        if not tensor.HasField("shape"):
            return TensorType(DTYPES[tensor.elem_type], None)
        shape: list[Dimension] = [
            size.dim_value
            if size.WhichOneof("value") == "dim_value" and size.dim_value >= 0
            else self.name_of(size.dim_param)
            for size in tensor.shape.dim
        ]
        return TensorType(DTYPES[tensor.elem_type], tuple(shape))


def value_info(
    name: str, tensor_type: TensorType, dimensions: Mapping[str, str]
) -> onnx.ValueInfoProto:
    """Make the entry with which a file gives a value's type; `dimensions` as in `ModelHeader`."""
    shape = tensor_type.shape
    sizes = None if shape is None else [_size(size, dimensions) for size in shape]
    return onnx.helper.make_tensor_value_info(name, NUMBERS[tensor_type.dtype], sizes)


def _size(size: Dimension, dimensions: Mapping[str, str]) -> int | str | None:
    if isinstance(size, int):
        return size
    if UNKNOWN in size:
        return None
    return re.sub(r"[A-Za-z_]\w*", lambda word: dimensions.get(word[0], word[0]), size)
