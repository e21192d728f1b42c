"""Make the points at which both sides of a rule are computed: elements of an instance's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rules.verification.instances import Instance

T = TypeVar("T")
PointFn = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Draws a tensor of a shape; float64."""


def make_point(
    instance: Instance,
    rng: np.random.Generator,
    point_fn: PointFn,
    fill_fn: Callable[[np.ndarray], np.ndarray] = lambda array: array,
) -> dict[str, np.ndarray]:
    """Draw the elements of all tensors that an instance's computation must be given, by name.

    `point_fn` draws the tensors of floats, but for those that are filled with one number: `fill_fn`
    converts these to the algebra's numbers.
    """
    point: dict[str, np.ndarray] = {}
    for name, tensor in instance.inputs.items():
        shape: Any = tensor.shape
        is_float = tensor.dtype in FLOAT_TYPES
        if name in instance.fills:
            filled = np.full(shape, instance.fills[name], np.float64)
            point[name] = fill_fn(filled) if is_float else filled.astype(tensor.dtype)
        elif is_float:
            point[name] = np.asarray(point_fn(rng, shape))
        elif tensor.dtype == "bool":
            point[name] = np.asarray(rng.integers(0, 2, shape).astype(bool))
        elif name in instance.limits:
            point[name] = np.asarray(rng.integers(0, instance.limits[name], shape))
        else:
            point[name] = np.asarray(rng.integers(-9, 10, shape).astype(tensor.dtype))
    return point


FINITE: tuple[PointFn, ...] = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.integers(-3, 4, shape).astype(np.float64),
    lambda rng, shape: rng.uniform(0.1, 2.0, shape),
    lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 2),
    lambda rng, shape: rng.standard_normal(shape) * rng.integers(0, 2, shape),
)
"""Tensors with zeros, ties and numbers of different magnitude, which integers do not test."""


_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan)


def special(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers of magnitude 1e-3 to 1e3, and among them zeros of both signs, infinities, NaN.

    Such special values take up no element of the tensor, one, about a third of them, or all of
    them; in the last case all elements are the same.
    """
    if rng.random() < 0.5:
        numbers = rng.integers(-3, 4, shape).astype(np.float64)
    else:
        numbers = np.clip(rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2), -1e3, 1e3)
        numbers = np.where(np.abs(numbers) < 1e-3, 1e-3, numbers)
    kind = rng.integers(4)
    if kind == 1 and numbers.size:
        numbers.reshape(-1)[rng.integers(numbers.size)] = choose(rng, _SPECIAL)
    elif kind == 2:
        numbers = np.where(rng.random(shape) < 1 / 3, rng.choice(_SPECIAL, shape), numbers)
    elif kind == 3:
        numbers = np.full(shape, choose(rng, _SPECIAL))
    return numbers


def choose(rng: np.random.Generator, options: Sequence[T]) -> T:
    """Draw one of a few options: as `rng.choice` does, in a fifth of its time."""
    return options[rng.integers(len(options))]


def single(array: np.ndarray) -> np.ndarray:
    """Round floating-point numbers to float32."""
    return np.asarray(array, np.float32) if array.dtype.kind == "f" else array
