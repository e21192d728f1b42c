"""What graphs are made of: types, references, nodes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Dimension = int | str
"""A size, or the name of one that is known only when the model runs."""

Scalar = int | float | str | bytes
Attribute = Scalar | tuple[Scalar, ...]
Attributes = tuple[tuple[str, Attribute], ...]
"""Sorted by name."""

INPUT, CONSTANT, OPAQUE = "Input", "Constant", "Opaque"


class TensorType(NamedTuple):
    """Type of a tensor.

    Attributes:
      dtype: NumPy's name of it, or ONNX's where NumPy has none ("bfloat16").
      shape: None where not even the rank is known.
    """

    dtype: str
    shape: tuple[Dimension, ...] | None

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)


class Ref(NamedTuple):
    """An output of a node."""

    node: int
    output: int = 0


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An operation.

    Attributes:
      op: operator.
      inputs: None where an optional one is left out.
      attributes: sorted by name.
      types: of the outputs; None for what is no tensor.
      value: of a Constant.
    """

    op: str
    inputs: tuple[Ref | None, ...]
    attributes: Attributes
    types: tuple[TensorType | None, ...]
    value: np.ndarray | None = None

    def attribute(self, name: str) -> Any:
        """The value of an attribute.

        Raises:
          KeyError: it has none of that name.
        """
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.op}: no attribute {name!r}")

    @property
    def key(self) -> tuple[str, Attributes, tuple[Ref | None, ...]]:
        """Equal keys mean equal nodes."""
        return self.op, self.attributes, self.inputs

    @property
    def label(self) -> int:
        """A hash of operator and attributes: the same in every process."""
        return _label(self.op, self.attributes)

    @property
    def used(self) -> list[int]:
        """The nodes that it has as inputs, each once, in their order."""
        return list(dict.fromkeys(ref.node for ref in self.inputs if ref is not None))


@dataclasses.dataclass(frozen=True)
class Change:
    """What an edit changed.

    Attributes:
      added: nodes that are new.
      removed: nodes that are gone.
      rewired: nodes that have other inputs than before, or have become constant.
    """

    added: tuple[int, ...]
    removed: tuple[int, ...]
    rewired: tuple[int, ...]


def attributes_of(values: Mapping[str, Attribute]) -> Attributes:
    """Attributes, sorted by name."""
    return tuple(sorted(values.items()))


@functools.lru_cache(maxsize=1 << 16)
def _label(op: str, attributes: Attributes) -> int:
    digest = hashlib.blake2b(repr((op, attributes)).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")
