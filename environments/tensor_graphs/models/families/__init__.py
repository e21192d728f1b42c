"""Families of small models, to learn from many graphs: `make(Builder("transformers:7", …))`.

A family draws what a member computes, how large it is, and in which of many spellings an exporter
wrote it (`exporter`). Name, seed, batch and opset decide everything. No member is one of the zoo's
fixed models.

  transformers   orders of norms and attention, masks, heads, gates, entries and ends
  adapters       low-rank adapters beside, or bottlenecks behind, some of a network's matrices
  convolutional  plain, residual, inverted, separable, dense and other blocks
  branches       branches that are added up, joined, or squeezed first; of images and of rows
  recurrent      LSTM, GRU and random trees, a few steps unrolled

Training draws numbers below FIRST_UNSEEN. From there on it evaluates a few members of each family;
from 2,000,000 on nothing is looked at, so these members can test what was learned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Batch, Builder
from environments.tensor_graphs.models.families.branches import branched
from environments.tensor_graphs.models.families.cells import recurrent
from environments.tensor_graphs.models.families.convolutions import convolutional
from environments.tensor_graphs.models.families.exporter import pick
from environments.tensor_graphs.models.families.transformers import adapted, transformer

_FAMILIES: Mapping[str, Callable[[Builder, np.random.Generator], onnx.ModelProto]] = {
    "transformers": transformer,
    "adapters": adapted,
    "convolutional": convolutional,
    "branches": branched,
    "recurrent": recurrent,
}
_OPSETS = (14, 14, 17, 20)

FAMILIES = tuple(_FAMILIES)
ALL = "families"
"""The name that stands for all families."""

FIRST_UNSEEN = 1_000_000


def is_member(name: str) -> bool:
    """Whether a name is FAMILY:NUMBER, such as transformers:7."""
    family, _, number = name.partition(":")
    # One number has one name: no leading zeros, no other digits than ASCII's.
    is_number = number.isascii() and number.isdigit() and str(int(number)) == number
    return family in _FAMILIES and is_number


def named(name: str) -> tuple[str, ...]:
    """Return the families that a name stands for: one, all for ALL, or none for other names."""
    return FAMILIES if name == ALL else (name,) if name in _FAMILIES else ()


def members(name: str, first: int, count: int) -> tuple[str, ...]:
    """Return the names of some members of each family that `name` stands for, from a number on."""
    return tuple(f"{family}:{first + k}" for family in named(name) for k in range(count))


def make(name: str, seed: int, batch: Batch, opset: int | None) -> onnx.ModelProto:
    """Make the member of a name for which `is_member` holds; arguments as for `models.make`.

    The seed decides on nothing but the weights.
    """
    family, _, number = name.partition(":")
    random = np.random.default_rng([zlib.crc32(family.encode()), int(number)])
    drawn = pick(random, _OPSETS)
    return _FAMILIES[family](Builder(name, seed, batch, opset or drawn), random)
