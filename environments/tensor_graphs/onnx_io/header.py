"""What a model's file says besides what it computes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import onnx

from environments.tensor_graphs.nodes import Dimension, Ref, TensorType
from environments.tensor_graphs.onnx_io.tensors import DTYPES, NUMBERS

DEFAULT_OPSET = 17
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
UNKNOWN = "unknown_"
"""How the names of sizes begin that the file does not name."""


@dataclasses.dataclass(frozen=True, eq=False)
class ModelHeader:
    """What is kept of a model's file to write it again.

    Attributes:
      shell: the model without nodes and initialisers.
      value_names: names of values. Nodes keep their numbers, so these hold for all graphs that are
        made of the one that was read.
      nodes: names, documentation and metadata of nodes, by number.
      described: names of the values whose types the file tells.
      defaults: of inputs that a caller may leave out.
      dimensions: the file's names of sizes by the graph's, where they differ.
    """

    shell: onnx.ModelProto
    value_names: Mapping[Ref, str] = dataclasses.field(default_factory=dict)
    nodes: Mapping[int, onnx.NodeProto] = dataclasses.field(default_factory=dict)
    described: frozenset[str] = frozenset()
    defaults: Mapping[str, onnx.TensorProto] = dataclasses.field(default_factory=dict)
    dimensions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return opset_of(self.shell)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that a model uses; 0 where it says none."""
    versions = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    return max(versions, default=0)


def make_header(opset: int = DEFAULT_OPSET) -> ModelHeader:
    """A header for a graph that comes from no file."""
    opsets = [onnx.helper.make_opsetid("", opset)]
    shell = onnx.ModelProto(ir_version=onnx.helper.find_min_ir_version_for(opsets))
    shell.opset_import.extend(opsets)
    shell.graph.name = "graph"
    return ModelHeader(shell)


class DimensionNames:
    """Gives the sizes of a file's tensors names that a graph can compute with.

    A name that is no plain word gets another one, and so does every size without a name.
    """

    def __init__(self) -> None:
        self.original: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._num_unknown = 0

    def unknown(self) -> str:
        """A name that no other size has."""
        self._num_unknown += 1
        return f"{UNKNOWN}{self._num_unknown}"

    def named(self, name: str) -> str:
        """The graph's name of a size that the file names."""
        if not name:
            return self.unknown()
        if name not in self._known:
            known = name
            if not _PLAIN_NAME.fullmatch(name) or name.startswith((UNKNOWN, "size_")):
                known = f"size_{len(self.original)}"
                self.original[known] = name
            self._known[name] = known
        return self._known[name]

    def type_of(self, type_proto: onnx.TypeProto) -> TensorType | None:
        """The type that a file tells; None for what is no tensor."""
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
            else self.named(size.dim_param)
            for size in tensor.shape.dim
        ]
        return TensorType(DTYPES[tensor.elem_type], tuple(shape))


def value_info(
    name: str, tensor_type: TensorType, dimensions: Mapping[str, str]
) -> onnx.ValueInfoProto:
    """How a file tells a tensor's type.

    Args:
      name: of the value.
      tensor_type: of the value.
      dimensions: `ModelHeader.dimensions`.
    """
    shape = tensor_type.shape
    sizes = None if shape is None else [_size(size, dimensions) for size in shape]
    return onnx.helper.make_tensor_value_info(name, NUMBERS[tensor_type.dtype], sizes)


def _size(size: Dimension, dimensions: Mapping[str, str]) -> int | str | None:
    if isinstance(size, int):
        return size
    if UNKNOWN in size:
        return None
    return re.sub(r"[A-Za-z_]\w*", lambda word: dimensions.get(word[0], word[0]), size)
