"""The parts of a graph: nodes, references to their outputs, types."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Dimension = int | str
"""A size, or the name of a size that is known only when the model runs."""

Scalar = int | float | str | bytes
Attribute = Scalar | tuple[Scalar, ...]
Attributes = tuple[tuple[str, Attribute], ...]
"""Sorted by name."""

INPUT, CONSTANT, OPAQUE = "Input", "Constant", "Opaque"


class TensorType(NamedTuple):
    """Type of a tensor.

    Attributes:
      dtype: NumPy's name of the element type, or ONNX's if NumPy has none ("bfloat16").
      shape: the size of each axis; None if the rank is not known.
    """

    dtype: str
    shape: tuple[Dimension, ...] | None

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)


class Ref(NamedTuple):
    """A reference to an output of a node: the node's number, and the index of the output."""

    node: int
    output: int = 0


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An operator applied to inputs.

    Attributes:
      inputs: the values that it uses; None for each optional one that is left out.
      types: types of its outputs; None for each that is no tensor.
      value: the array of a Constant; None for other operators.
    """

    op: str
    inputs: tuple[Ref | None, ...]
    attributes: Attributes
    types: tuple[TensorType | None, ...]
    value: np.ndarray | None = None

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute; raise KeyError if there is none of this name."""
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.op}: no attribute {name!r}")

    @property
    def is_model_input(self) -> bool:
        """Whether this is an input of the model itself, not of a body."""
        return self.op == INPUT and all(name != "body" for name, _ in self.attributes)

    @property
    def key(self) -> tuple[str, Attributes, tuple[Ref | None, ...]]:
        """The operator, attributes and inputs; nodes with equal keys are equal."""
        return self.op, self.attributes, self.inputs

    @property
    def label(self) -> int:
        """A hash of operator and attributes that is the same in every process."""
        return _label(self.op, self.attributes)

    @property
    def used(self) -> list[int]:
        """Numbers of the nodes whose outputs this one uses, each once, in the order of inputs."""
        return list(dict.fromkeys(ref.node for ref in self.inputs if ref is not None))


@dataclasses.dataclass(frozen=True)
class Change:
    """The nodes that an edit changed, by their numbers in ascending order.

    Attributes:
      added: nodes that only the new graph has.
      removed: nodes that only the old graph has.
      rewired: nodes of both that have other inputs, or have become constant.
    """

    added: tuple[int, ...]
    removed: tuple[int, ...]
    rewired: tuple[int, ...]


def attributes_of(values: Mapping[str, Attribute]) -> Attributes:
    """Return attributes in the form that nodes hold: pairs sorted by name."""
    return tuple(sorted(values.items()))


@functools.lru_cache(maxsize=1 << 16)
def _label(op: str, attributes: Attributes) -> int:
    digest = hashlib.blake2b(repr((op, attributes)).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")
