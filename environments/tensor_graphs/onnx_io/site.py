"""A graph while it is read: what is known of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph import Edit
from environments.tensor_graphs.nodes import CONSTANT, Ref, TensorType
from environments.tensor_graphs.onnx_io.sizes import MAX_ELEMENTS, Sizes, are_known, as_sizes
from environments.tensor_graphs.onnx_io.tensors import is_numpy
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.operators.table import OPERATORS, evaluate


class NotCanonicalError(Exception):
    """A node has no canonical form: it becomes Opaque."""


class Site:
    """An edit, with the values that are known before the model runs.

    Attributes:
      edit: what nodes are added to.
      opset: version of ONNX's operators.
    """

    def __init__(self, edit: Edit, opset: int) -> None:
        self.edit = edit
        self.opset = opset
        self._sizes: dict[Ref, Sizes] = {}
        self._values: dict[Ref, np.ndarray | None] = {}

    def add(self, op: str, *inputs: Ref, **attributes: Any) -> tuple[Ref, ...]:
        """A node in its canonical form.

        Raises:
          OperatorError: there is none.
          NotCanonicalError: an input has no elements: operators have odd meanings then.
        """
        for ref in inputs:
            if 0 in self.shape_of(ref):
                raise NotCanonicalError
        return building.add(self.edit, op, *inputs, **attributes)

    def type_of(self, ref: Ref) -> TensorType:
        """The type of a value.

        Raises:
          NotCanonicalError: it is no tensor, or not even its rank is known.
        """
        found = self.edit.type_of(ref)
        if found is None or found.shape is None:
            raise NotCanonicalError
        return found

    def shape_of(self, ref: Ref) -> tuple[Any, ...]:
        """The shape of a value.

        Raises:
          NotCanonicalError: as `type_of`.
        """
        return self.type_of(ref).shape or ()

    def rank_of(self, ref: Ref) -> int:
        """The rank of a value.

        Raises:
          NotCanonicalError: as `type_of`.
        """
        return len(self.shape_of(ref))

    def note_sizes(self, ref: Ref, sizes: Sizes) -> None:
        """Remembers the value of a tensor of sizes."""
        self._sizes[ref] = sizes

    def sizes_of(self, ref: Ref | None) -> Sizes | None:
        """Numbers and names that a tensor of integers or truth values has as its value."""
        if ref is None:
            return None
        if ref not in self._sizes:
            value = self.value_of(ref)
            if value is None or value.dtype.kind not in "ib":
                return None
            self._sizes[ref] = as_sizes(value)
        return self._sizes[ref]

    def value_of(self, ref: Ref) -> np.ndarray | None:
        """The value of a short constant, which may have to be computed; None for all others."""
        if ref not in self._values:
            self._values[ref] = self._compute(ref)
        return self._values[ref]

    def integers(self, ref: Ref) -> tuple[int, ...]:
        """The value of a list of integers.

        Raises:
          NotCanonicalError: it is known only when the model runs.
        """
        sizes = self.sizes_of(ref)
        if sizes is None or not are_known(sizes):
            raise NotCanonicalError
        return tuple(int(size) for size in sizes.reshape(-1))

    def number(self, ref: Ref) -> float:
        """The value of a tensor of one number, if float32 has it: attributes are of that type.

        Raises:
          NotCanonicalError: it is known only when the model runs, or not exact in float32.
        """
        value = self.value_of(ref)
        if value is None or value.size != 1 or value.dtype.kind not in "iuf":
            raise NotCanonicalError
        number = value.reshape(())
        if float(np.float32(number)) != float(number) or int_lost(number):
            raise NotCanonicalError
        return float(number)

    def _compute(self, ref: Ref) -> np.ndarray | None:
        node, found = self.edit.node(ref.node), self.edit.type_of(ref)
        if not self.edit.is_constant(ref.node) or found is None or not found.is_static:
            return None
        if not is_numpy(found.dtype) or _count(found.shape or ()) > MAX_ELEMENTS:
            return None
        if node.op == CONSTANT:
            return node.value
        if node.op not in OPERATORS:
            return None
        inputs = [None if one is None else self.value_of(one) for one in node.inputs]
        arrays = [array for array in inputs if array is not None]
        if len(arrays) < len(inputs):
            return None
        return evaluate(node.op, arrays, node.attributes)[ref.output]


def int_lost(number: np.ndarray) -> bool:
    """Whether an integer changes on its way to a float and back."""
    return number.dtype.kind in "iu" and int(float(number)) != int(number)


def _count(shape: Sequence[Any]) -> int:
    return int(np.prod(shape)) if shape else 1
