"""Recurrent networks, unrolled, whose cells are drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.exporter import Exporter, pick

Merge = tuple[int, int, str, str]
"""Two values by their numbers, the operator that joins them, and what is applied to the result."""


def recurrent(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build three to five steps of a cell."""
    export = Exporter(build, random)
    size, steps = pick(random, [32, 64, 128, 256, 384, 512]), pick(random, [3, 4, 5])
    kind = pick(random, ["lstm", "gru", "tree", "tree"])
    sequence = build.input("sequence", [build.batch, steps, size])
    state = build.input("state", [build.batch, size])
    memory = build.input("memory", [build.batch, size]) if kind == "lstm" else ""
    num_gates = {"lstm": 4, "gru": 3}.get(kind) or pick(random, [2, 3, 4, 5])
    gates = _Gates(export, random, size, num_gates)
    merges = _draw_merges(random, num_gates)
    states = []
    for step, x in enumerate(_steps(export, random, sequence, steps)):
        build.scope = f"step.{step}"
        if kind == "lstm":
            state, memory = _lstm(build, gates(x, state), memory)
        elif kind == "gru":
            state = _gru(build, gates(x, state), state)
        else:
            state = _tree(build, gates(x, state), merges)
        states.append(state)
    build.scope = "end"
    if random.random() < 0.5:
        out = export.linear(state, size, size // 2, "last")
        return build.finish(last=(out, [build.batch, size // 2]))
    joined = build.node("Concat", *states, axis=1)
    return build.finish(states=(joined, [build.batch, steps * size]))


class _Gates:
    """Adds `count` gates x W + h U + b of a cell, [N, size] each; the steps share their weights.

    Their form is drawn: "single" products for each gate, "packed" ones for all gates, or "joined":
    one product for all gates, of x and h side by side.
    """

    def __init__(
        self, export: Exporter, random: np.random.Generator, size: int, count: int
    ) -> None:
        self._export = export
        self._form = pick(random, ["single", "single", "packed", "joined"])
        self._sizes = [size] * count
        build, total = export.build, size * (1 if self._form == "single" else count)
        rows = [2 * size] if self._form == "joined" else [size, size]
        build.scope = "cell"
        self._weights = [
            (
                [build.normal("weight", [size_in, total], (2 * size) ** -0.5) for size_in in rows],
                build.normal("bias", [total], 0.1),
            )
            for _ in range(count if self._form == "single" else 1)
        ]

    def __call__(self, x: str, state: str) -> list[str]:
        """Add the gates of a step, each [N, size]."""
        build = self._export.build
        inputs = [build.node("Concat", x, state, axis=1)] if self._form == "joined" else [x, state]
        gates = []
        for matrices, bias in self._weights:
            products = [build.node("MatMul", *pair) for pair in zip(inputs, matrices, strict=True)]
            y = build.node("Add", *products) if len(products) == 2 else products[0]
            gates.append(self._export.commuted("Add", y, bias))
        if self._form == "single":
            return gates
        sizes = build.integers(*self._sizes)
        return build.nodes("Split", len(self._sizes), gates[0], sizes, axis=1)


def _steps(
    export: Exporter, random: np.random.Generator, sequence: str, steps: int
) -> Sequence[str]:
    """Add what takes [N, steps, size] apart; returns [N, size] of each step."""
    build, kind = export.build, pick(random, ["Gather", "Split", "Slice"])
    if kind == "Gather":
        return [
            build.node("Gather", sequence, build.scalar(step, np.int64), axis=1)
            for step in range(steps)
        ]
    if kind == "Split":
        parts = build.nodes("Split", steps, sequence, build.integers(*[1] * steps), axis=1)
    else:
        axis = build.integers(1)
        parts = [
            build.node("Slice", sequence, build.integers(step), build.integers(step + 1), axis)
            for step in range(steps)
        ]
    return [build.node("Squeeze", part, build.integers(1)) for part in parts]


def _lstm(build: Builder, gates: Sequence[str], memory: str) -> tuple[str, str]:
    keep, write, read = (build.node("Sigmoid", gate) for gate in gates[:3])
    new = build.node("Mul", write, build.node("Tanh", gates[3]))
    memory = build.node("Add", build.node("Mul", keep, memory), new)
    return build.node("Mul", read, build.node("Tanh", memory)), memory


def _gru(build: Builder, gates: Sequence[str], state: str) -> str:
    """Add a state like a GRU's: z h + (1 - z) tanh(r c)."""
    keep, read = (build.node("Sigmoid", gate) for gate in gates[:2])
    new = build.node("Tanh", build.node("Mul", read, gates[2]))
    rest = build.node("Mul", build.node("Sub", build.scalar(1), keep), new)
    return build.node("Add", build.node("Mul", keep, state), rest)


def _draw_merges(random: np.random.Generator, num_gates: int) -> list[Merge]:
    """Draw a tree that joins all gates, two values at a time."""
    merges = []
    for count in range(num_gates, 1, -1):
        first, second = random.permutation(count)[:2]
        op = pick(random, ["Add", "Mul", "Sub"])
        merges.append((int(first), int(second), op, pick(random, ["Tanh", "Sigmoid", "Relu"])))
    return merges


def _tree(build: Builder, gates: Sequence[str], merges: Sequence[Merge]) -> str:
    """Add a state that joins gates, with a function before and after each operator."""
    values = [build.node(("Tanh", "Sigmoid", "Relu")[n % 3], gate) for n, gate in enumerate(gates)]
    for first, second, op, function in merges:
        joined = build.node(function, build.node(op, values[first], values[second]))
        values = [value for n, value in enumerate(values) if n not in (first, second)] + [joined]
    return build.node("Tanh", values[0])
