"""Is a rule right? Exact identity testing over random shapes and attributes, and floating point.

An instance fixes shapes and attributes; then both sides are functions of the elements. They are
computed at a random point of the field of integers modulo p = 2³¹ - 1, in which sums, products,
quotients and means are exact and all other functions have no meaning but their arguments
(`operators.field`). Two different rational functions of degree d would agree there with a
probability of at most d / p (Schwartz and Zippel), so agreement is a proof for these shapes and
attributes but for that error. In each of many instances there is a new point, and a new meaning of
the functions. The thesis verifies with small tensors too (section 3.1: up to 4×4×4×4).

Both sides are computed in floating point as well, at points that the field knows nothing of: zeros,
ties, numbers of different magnitude. Where the source has a number, the target must have the same.
A rule that needs more than the field has, Relu(2·x) = 2·Relu(x) say, can only be shown like this;
it takes more instances, and `Verdict.how` says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from environments.tensor_graphs.expressions import Term
from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.operators.field import PRIME, Field
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis.instances import Instance, InstanceDrawer
from environments.tensor_graphs.terms import holds

_TOLERANCE = 2e-6
_TOLERANCE_32 = 1e-4
_EXTRA_FACTOR = 4
_ROUNDINGS = 16
_MOST_NOISY = 1e3
_MAX_SHOWN = 300

PointFn = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _magnitudes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 2)


def _sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * rng.integers(0, 2, shape)


_POINTS: tuple[PointFn, ...] = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.integers(-3, 4, shape).astype(np.float64),
    lambda rng, shape: rng.uniform(0.1, 2.0, shape),
    _magnitudes,
    _sparse,
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What verification found.

    Attributes:
      is_right: whether the rule may be used.
      how: how it was shown, or what is wrong with it; one line.
      num_instances: how many instances were looked at.
      counterexample: an instance in which it is wrong; empty when none was found.
    """

    is_right: bool
    how: str
    num_instances: int
    counterexample: str = ""


def verify(rule: Substitution, num_instances: int = 100, seed: int = 0) -> Verdict:
    """Tests a rule.

    Args:
      rule: its conditions are taken into account, its restrictions are not.
      num_instances: shapes and attributes to test it with.
      seed: of all that is random.
    """
    drawer = InstanceDrawer(rule, seed)
    rng = np.random.default_rng([seed, 1])
    degree, num_compared = 1, 0
    is_exact = True
    count, wanted = 0, num_instances
    while count < wanted:
        instances = drawer.draw_round()
        if not instances:
            return Verdict(False, f"it applied to {count} of {count + 1} random instances", count)
        for instance in instances[: wanted - count]:
            if is_exact:
                degree = max(degree, _degree(instance))
                if _differs_in_field(instance, rng, key=count):
                    is_exact = False
                    wanted = _EXTRA_FACTOR * num_instances
            problem, compared = _float_problem(instance, rng, count)
            num_compared += compared
            count += 1
            if problem:
                example = f"{instance}: {problem}"[:_MAX_SHOWN]
                return Verdict(False, f"wrong for {example}", count, example)
    if not num_compared:
        return Verdict(False, "its source never had a finite value", count)
    return Verdict(True, _how(is_exact, count, degree), count)


def needs(
    rule: Substitution, condition: Term, num_instances: int = 2000, seed: int = 0
) -> str | None:
    """An instance that shows why a rule has a condition.

    Args:
      rule: a rule.
      condition: one of its conditions.
      num_instances: how many instances of the rule without the condition to look at.
      seed: of all that is random.

    Returns:
      An instance in which the rule would apply without the condition, and be wrong; None if there
      is none among those that were looked at.
    """
    kept = tuple(one for one in rule.conditions if one != condition)
    drawer = InstanceDrawer(dataclasses.replace(rule, conditions=kept), seed)
    rng = np.random.default_rng([seed, 2])
    count = 0
    while count < num_instances:
        instances = drawer.draw_round()
        if not instances:
            return None
        for instance in instances:
            count += 1
            if holds(condition, instance.bindings):
                continue
            problem, _ = _float_problem(instance, rng, count)
            if problem:
                return f"{instance}: {problem}"[:_MAX_SHOWN]
    return None


def problem_in(instance: Instance, rng: np.random.Generator, count: int = 0) -> str:
    """How source and target differ in an instance; empty if they agree."""
    if not _differs_in_field(instance, rng, count):
        return _float_problem(instance, rng, count)[0]
    # The field may have too little meaning; numbers decide.
    problems = (_float_problem(instance, rng, one)[0] for one in range(2 * len(_POINTS)))
    return next((one for one in problems if one), "")


def _how(is_exact: bool, count: int, degree: int) -> str:
    if is_exact:
        return (
            f"identity testing modulo 2^31-1 in {count} instances, error below "
            f"{degree / PRIME:.0e} in each; floating point in {count}"
        )
    return f"floating point in {count} instances"


def _differs_in_field(instance: Instance, rng: np.random.Generator, key: int) -> bool:
    if not any(one.dtype in FLOAT_TYPES for one in instance.given.values()):
        return False
    field = Field(key)
    given = {}
    for name, tensor in instance.given.items():
        if name in instance.fills:
            filled = np.full(_sizes(tensor.shape), instance.fills[name])
            is_float = tensor.dtype in FLOAT_TYPES
            given[name] = field.embed(filled) if is_float else filled.astype(tensor.dtype)
        elif tensor.dtype in FLOAT_TYPES:
            given[name] = field.random(rng, _sizes(tensor.shape))
        else:
            given[name] = _integers(rng, instance, name)
    with np.errstate(all="ignore"):
        found = instance.computation.run(given, field)
    return any(not np.array_equal(one, other) for one, other in _pairs(instance, found))


def _float_problem(instance: Instance, rng: np.random.Generator, count: int) -> tuple[str, int]:
    """How the sides differ in floating point, and how many numbers were compared."""
    given: dict[str, np.ndarray] = {}
    point = _POINTS[count % len(_POINTS)]
    for name, tensor in instance.given.items():
        is_float = tensor.dtype in FLOAT_TYPES
        if name in instance.fills:
            filled = np.full(_sizes(tensor.shape), instance.fills[name])
            given[name] = filled if is_float else filled.astype(tensor.dtype)
        elif is_float:
            given[name] = np.asarray(point(rng, _sizes(tensor.shape)))
        else:
            given[name] = _integers(rng, instance, name)
    problem, compared = _compare(instance, given, _TOLERANCE)
    if not problem and count % len(_POINTS) == 0:
        single = {name: _narrowed(one) for name, one in given.items()}
        problem, _ = _compare(instance, single, _TOLERANCE_32)
    return problem, compared


def _narrowed(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _compare(instance: Instance, given: dict[str, np.ndarray], tolerance: float) -> tuple[str, int]:
    with np.errstate(all="ignore"):
        found = instance.computation.run(given, FLOATS)
    noise = _noise(found)
    compared = 0
    for number, (old, new) in enumerate(_pairs(instance, found)):
        if old.shape != new.shape:
            return f"output {number} has shape {new.shape} instead of {old.shape}", compared
        is_number = np.isfinite(old)
        if np.issubdtype(old.dtype, np.signedinteger):
            is_number = old != np.iinfo(old.dtype).min  # What no number is larger than.
        compared += int(np.count_nonzero(is_number))
        scale = float(np.max(np.abs(old, where=is_number, out=np.zeros(old.shape)), initial=0.0))
        with np.errstate(all="ignore"):
            error = np.abs(old.astype(np.float64) - new.astype(np.float64))
        wrong = is_number & ~(error <= tolerance * scale + noise)
        if np.any(wrong):
            place = tuple(np.argwhere(wrong)[0])
            what = f"output {number} is {new[place]:.6g} instead of {old[place]:.6g}"
            return what, compared
    return "", compared


def _noise(found: list[tuple[np.ndarray, ...]]) -> float:
    """What rounding may leave where numbers cancel each other: 1 + erf(x) far below zero, say."""
    numbers = [one for several in found for one in several if one.dtype.kind == "f" and one.size]
    if not numbers:
        return 0.0
    largest = max(
        float(np.max(np.abs(one), where=np.isfinite(one), initial=0.0)) for one in numbers
    )
    epsilon = max(float(np.finfo(one.dtype).eps) for one in numbers)
    return _ROUNDINGS * epsilon * min(largest, _MOST_NOISY)


def _pairs(
    instance: Instance, found: list[tuple[np.ndarray, ...]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for source, target in zip(instance.sources, instance.targets, strict=True):
        yield found[source[0]][source[1]], found[target[0]][target[1]]


def _integers(rng: np.random.Generator, instance: Instance, name: str) -> np.ndarray:
    """Elements of a tensor of truths, of indices, or of other integers."""
    tensor = instance.given[name]
    shape = _sizes(tensor.shape)
    if tensor.dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if name in instance.limits:
        return np.asarray(rng.integers(0, instance.limits[name], shape))
    return np.asarray(rng.integers(-9, 10, shape).astype(tensor.dtype))


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in shape or ())


_PRODUCTS = frozenset({"Mul", "Div", "MatMul", "Gemm", "Conv", "ConvTranspose"})


def _degree(instance: Instance) -> int:
    """A bound of the degree of all that is computed; a function's is that of its argument."""
    degrees: list[int] = []
    for step in instance.computation.steps:
        given = [degrees[one[0]] for one in step.inputs if one is not None]
        if not step.op:
            degrees.append(1 if step.name else 0)
        elif step.op in _PRODUCTS:
            degrees.append(sum(given))
        elif step.op.endswith("Normalization"):
            degrees.append(4 * sum(given))
        elif step.op == "Pow":
            degrees.append(64 * max(given))
        else:
            degrees.append(max(given, default=0))
    return max(1, sum(degrees))
