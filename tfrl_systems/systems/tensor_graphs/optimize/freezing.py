"""Fixed sizes for a model that leaves sizes open: `tfrl optimize --freeze`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from environments.errors import UsageError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.trials import Trial
from tfrl_systems.systems.tensor_graphs.original import Original


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
