"""Linear layers, some of which have low-rank adapters."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.models.families.exporter import Exporter
from environments.tensor_graphs.models.families.spelling import pick


class AdaptedLinear:
    """Adds linear layers: of most models some have adapters x A B s, and others have none.

    Each name of a layer is adapted alike in all blocks. The first name is always adapted, and the
    second one never.

    Args:
      export: adds the layers.
      random: draws rank, number and form of the adapters, and which layers have them.
    """

    def __init__(self, export: Exporter, random: np.random.Generator) -> None:
        self._export = export
        self._random = random
        self._rank = pick(random, [2, 4, 8, 16, 32, 64])
        self._num_adapters = pick(random, [1, 1, 1, 2])
        self._form = pick(random, ["beside", "beside", "beside", "product", "bottleneck"])
        self._scaled = pick(random, ["input", "inside", "output", "nothing"])
        self._is_adapted: dict[str, bool] = {}

    def __call__(self, x: str, size_in: int, size_out: int, name: str) -> str:
        """Add a linear layer: [*rows, size_in] -> [*rows, size_out]."""
        y = self._export.linear(x, size_in, size_out, name)
        if name not in self._is_adapted:
            drawn = self._random.random() < 0.5
            first_two = {0: True, 1: False}
            self._is_adapted[name] = first_two.get(len(self._is_adapted), drawn)
        if self._is_adapted[name]:
            for _ in range(self._num_adapters):
                y = self._with_adapter(x, y, size_in, size_out, name)
        return y

    def _with_adapter(self, x: str, y: str, size_in: int, size_out: int, name: str) -> str:
        """Add an adapter of x, or of the layer's output y if it is a bottleneck."""
        export, build, rank = self._export, self._export.build, self._rank
        if self._form == "bottleneck":
            down = export.activate("relu", export.linear(y, size_out, rank, f"{name}.down"))
            return build.node("Add", y, export.linear(down, rank, size_out, f"{name}.up"))
        down = build.normal(f"{name}.A", [size_in, rank], size_in**-0.5)
        up = build.normal(f"{name}.B", [rank, size_out], rank**-0.5)
        scaled = self._scaled
        x = export.scaled(x, 0.5) if scaled == "input" else x
        if self._form == "product":
            part = build.node("MatMul", x, build.node("MatMul", down, up))
        else:
            part = build.node("MatMul", x, down)
            part = export.scaled(part, 0.5) if scaled == "inside" else part
            part = build.node("MatMul", part, up)
        part = export.scaled(part, 0.5) if scaled == "output" else part
        return build.node("Add", *((part, y) if export.spelling.bias_first else (y, part)))
