"""NasRNN: the recurrent cell found by architecture search (Zoph and Le, 2017), unrolled."""

from __future__ import annotations

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder

_GATES = 8


def nasrnn(build: Builder, steps: int, hidden: int) -> onnx.ModelProto:
    """Build NasRNN with the given number of steps, which share their weights."""
    sequence = build.input("sequence", [build.batch, steps, hidden])
    state = build.input("state", [build.batch, hidden])
    build.scope = "cell"
    weights = [
        tuple(build.normal(f"{kind}.{gate}", [hidden, hidden], hidden**-0.5) for kind in "wu")
        for gate in range(_GATES)
    ]
    for step in range(steps):
        build.scope = f"step.{step}"
        x = build.node("Gather", sequence, build.scalar(step, np.int64), axis=1)
        state = _cell(build, x, state, weights)
    return build.finish(last_state=(state, [build.batch, hidden]))


def _cell(build: Builder, x: str, state: str, weights: list[tuple[str, ...]]) -> str:
    """Add a cell: eight gates x W_i + h U_i, combined by a tree of elementwise functions."""

    def combined(op: str, left: tuple[str, str], right: tuple[str, str]) -> str:
        return build.node(op, *(build.node(function, value) for function, value in (left, right)))

    t = [
        build.node("Add", build.node("MatMul", x, w), build.node("MatMul", state, u))
        for w, u in weights
    ]
    m = [
        combined("Add", ("Relu", t[0]), ("Sigmoid", t[3])),
        combined("Add", ("Sigmoid", t[1]), ("Tanh", t[2])),
        combined("Mul", ("Sigmoid", t[4]), ("Tanh", t[5])),
        combined("Mul", ("Sigmoid", t[6]), ("Relu", t[7])),
    ]
    near = combined("Add", ("Sigmoid", m[1]), ("Tanh", m[2]))
    far = combined("Mul", ("Tanh", m[0]), ("Tanh", m[3]))
    return build.node("Tanh", combined("Mul", ("Tanh", near), ("Tanh", far)))
