"""Fixed sizes for a model that leaves sizes open: `tfrl optimize --freeze`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx

from environments.errors import UsageError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.trials import Trial
from environments.tensor_graphs.onnx_io.reading import loading
from tfrl_systems.experiments.systems.tensor_graphs.original import Original

Shapes = Mapping[str, Sequence[int]]
"""Shapes of a model's inputs, by name."""


def frozen(original: Original, choice: Choice, own: Sequence[Trial]) -> Choice:
    """Fix the sizes of a model's graph at those that lead the search; return a choice of these.

    Args:
      original: the model, whose graph is replaced. The model itself stays, to compare with.
      choice: the sizes that were chosen; half and double of them are no longer possible.
      own: the user's inputs.

    Raises:
      UsageError: the user's inputs have several sizes.
    """
    found = list(dict.fromkeys(str(one.sizes) for one in own))
    if len(found) > 1:
        raise UsageError(
            f"--freeze: expected inputs of the same sizes, found {' and '.join(found)}; give one "
            "file"
        )
    first = choice.points[0]
    original.graph = onnx_io.read(original.source, shapes=dict(first.shapes))
    return dataclasses.replace(choice, points=(first,))


def with_fixed_shapes(content: bytes, shapes: Shapes) -> bytes:
    """Return the content of a model's file in which the inputs have fixed shapes, and no more."""
    model = onnx.ModelProto.FromString(content)
    return loading.frozen(model, shapes).SerializeToString()
