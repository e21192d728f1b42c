"""Find out for which integers, and whether for truth values, a rule is right.

Integers wrap around: in int8, 100 + 100 is -56, and x · x may be negative. So a rule that is right
for real numbers may be wrong for them. The instances of a rule are given other element types than
those of floating point, in turn, and both sides are computed at points over the whole range of the
type. Wherever the source has a value, the target must have exactly the same one.

A rule is right for a group of types (`language.rule`) if it is right for all types of the group
that its source takes. A target may use what the source does not, such as Neg, which ONNX does not
define for unsigned integers, or Gemm, which onnxruntime computes for no integers. Then the rule is
not for these types.

A rule that converts floating-point numbers to integers must be right for large ones, too.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator

import numpy as np
from onnx import defs

from environments.tensor_graphs.operators.algebra import Floats
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rules.language.computations import Computation
from environments.tensor_graphs.rules.language.expressions import Apply, parts
from environments.tensor_graphs.rules.language.rule import FLOAT, GROUPS, Rule, group_of
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer

_DTYPES = (
    "int64", "uint8", "bool", "int32", "uint64", "int8", "uint32", "int16", "uint16",
)  # fmt: skip
_POINTS_PER_INSTANCE = 4
_MOST_MISFITS = 12
_NUM_KEYS = 4
_TOLERANCE = 1e-3
_ONNX_NAMES = {"float32": "float", "float64": "double"}
_RARE = frozenset({"Gemm", "PRelu", "Relu"})
"""What onnxruntime computes for few integers, or for none."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)

Use = tuple[str, int, str]
"""An operator, the index of an input, and the element type of that input."""


class TypeTrials:
    """Tries a rule with one element type after another."""

    def __init__(self, rule: Rule, drawer: InstanceDrawer, rng: np.random.Generator) -> None:
        self._drawer, self._rng = drawer, rng
        converts = any(
            isinstance(part, Apply) and part.op == "Cast"
            for root in (*rule.source, *rule.target)
            for part in parts(root)
        )
        self._open = [*_DTYPES, *(("float32",) if converts else ())]
        self._problems: dict[str, str] = {}
        self._num_fits: collections.Counter[str] = collections.Counter()
        self._num_misfits: collections.Counter[str] = collections.Counter()
        self._turn = 0

    @property
    def types(self) -> tuple[str, ...]:
        """The groups of element types for which nothing is wrong with the rule."""
        tried = {FLOAT, *map(group_of, self._num_fits)}
        return tuple(group for group in GROUPS if group in tried and group not in self._problems)

    @property
    def problem_of_floats(self) -> str:
        """What is wrong where floating-point numbers become integers; empty if nothing is."""
        return self._problems.get(FLOAT, "")

    def test(self, instance: Instance) -> None:
        """Give an instance the next element type in turn, and test the rule with it."""
        if not self._open:
            return
        self._turn = (self._turn + 1) % len(self._open)
        dtype = self._open[self._turn]
        retyped = self._drawer.retyped(instance, dtype, lambda: self._number(dtype))
        if retyped is None or not retyped.targets or not all(map(_takes, _uses_of_source(retyped))):
            self._num_misfits[dtype] += 1
            if self._num_misfits[dtype] >= _MOST_MISFITS and not self._num_fits[dtype]:
                self._open.remove(dtype)
            return
        self._num_fits[dtype] += 1
        problem = _unfit(retyped) or self._difference(retyped)
        if problem:
            group = group_of(dtype)
            self._problems[group] = f"{retyped}: {problem}"
            self._open = [name for name in self._open if group_of(name) != group]

    def _number(self, dtype: str) -> int:
        return int(_whole_range(self._rng, dtype, ()))

    def _difference(self, instance: Instance) -> str:
        points = (_point(instance, self._rng) for _ in range(_POINTS_PER_INSTANCE))
        return next(filter(None, (_difference_at(instance, point) for point in points)), "")


def _uses(computation: Computation) -> Iterator[Use]:
    for step in computation.steps:
        for place, origin in enumerate(step.inputs):
            if origin is not None:
                tensor = computation.type_of(origin)
                assert tensor is not None
                yield step.op, place, tensor.dtype


def _uses_of_source(instance: Instance) -> Iterator[Use]:
    return _uses(instance.computation.only(instance.sources)[0])


@functools.lru_cache(maxsize=4096)
def _takes(use: Use) -> bool:
    """Return whether ONNX defines an operator for the element type of an input."""
    op, place, dtype = use
    if not defs.has(op):
        return True
    inputs = defs.get_schema(op).inputs
    return f"tensor({_ONNX_NAMES.get(dtype, dtype)})" in inputs[min(place, len(inputs) - 1)].types


def _unfit(instance: Instance) -> str:
    """Return what the target uses although it cannot be used for these types; "" if nothing."""
    of_source = set(_uses_of_source(instance))
    for use in _uses(instance.computation):
        op, _, dtype = use
        is_rare = op in _RARE and dtype not in FLOAT_TYPES
        if not _takes(use) or (is_rare and use not in of_source):
            return f"{op} takes no {dtype}"
    return ""


def _point(instance: Instance, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the elements of all tensors of an instance, over the whole range of their types."""
    point = {}
    for name, tensor in instance.inputs.items():
        shape = tuple(int(size) for size in tensor.shape or ())
        if name in instance.fills:
            point[name] = np.full(shape, instance.fills[name], tensor.dtype)
        elif name in instance.limits:
            point[name] = np.asarray(rng.integers(0, instance.limits[name], shape))
        else:
            point[name] = _whole_range(rng, tensor.dtype, shape)
    return point


def _whole_range(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw elements: any of the type, the smallest and the largest, small ones, or of any size."""
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    limits = np.iinfo("int64" if dtype in FLOAT_TYPES else dtype)
    low, high, kind = limits.min, limits.max, limits.dtype
    match rng.integers(4):
        case 0:
            drawn = rng.integers(low, high, shape, kind, endpoint=True)
        case 1:
            extremes = [low, low + 1, high // 2, high - 1, high, 0, 1, 2, max(-1, low)]
            drawn = rng.choice(np.array(extremes, kind), shape)
        case 2:
            drawn = rng.integers(max(low, -9), 10, shape, kind)
        case _:
            drawn = rng.integers(low, high, shape, kind, endpoint=True)
            drawn = drawn >> rng.integers(0, limits.bits - 1, shape).astype(kind)
    return np.asarray(drawn).astype(dtype)


def _difference_at(instance: Instance, point: dict[str, np.ndarray]) -> str:
    """Describe how the sides differ at a point where the source has a value; "" if nowhere."""
    runs = []
    for key in range(_NUM_KEYS):
        algebra = Wrapping(key)
        runs.append(instance.computation.run(point, algebra))
        # Keys differ only in results that ONNX does not define.
        if algebra.is_defined:
            break
    outputs = [list(instance.outputs(run)) for run in runs]
    for number, (source, target) in enumerate(outputs[0]):
        is_defined = np.ones(source.shape, bool)
        differs = np.zeros(source.shape, bool)
        for run in outputs:
            is_defined &= _same(run[number][0], source)
            differs |= ~_agree(*run[number])
        if np.any(is_defined & differs):
            place = tuple(np.argwhere(is_defined & differs)[0])
            return f"output {number} is {target[place]} instead of {source[place]}"
    return ""


def _same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray((left == right) | ((left != left) & (right != right)))


def _agree(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return where the sides agree; floating-point numbers may be rounded differently."""
    if source.dtype.kind != "f":
        return _same(source, target)
    scale = np.max(np.abs(source), where=np.isfinite(source), initial=0.0)
    with np.errstate(all="ignore"):
        return ~np.isfinite(source) | (np.abs(source - target) <= _TOLERANCE * scale)


class Wrapping(Floats):
    """NumPy's numbers. Where ONNX defines no result, it depends on a key.

    A quotient by zero is not defined, nor is the smallest integer divided by -1, nor a number that
    is converted to a type that does not hold it. Such a result is a hash of the operand and of the
    key. So an element of a tensor is defined if it is the same for several keys.

    Attributes:
      is_defined: whether everything computed so far is defined.
    """

    def __init__(self, key: int = 0) -> None:
        self._key = np.uint64(key)
        self.is_defined = True

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """Return a number as an array of shape []; integers wrap around."""
        if like.dtype.kind not in "iu":
            return super().number(value, like)
        bits = 8 * like.dtype.itemsize
        return np.asarray(int(value) % 2**bits, f"uint{bits}").astype(like.dtype)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Divide two arrays; quotients of integers are truncated."""
        if a.dtype.kind not in "iu":
            return super().divide(a, b)
        undefined = b == 0
        if a.dtype.kind == "i":
            undefined = undefined | ((a == np.iinfo(a.dtype).min) & (b == -1))
        return self._unless(
            undefined, super().divide(a, np.where(undefined, np.ones_like(b), b)), a
        )

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """Convert an array to another element type."""
        if x.dtype.kind != "f" or np.dtype(dtype).kind not in "iu":
            return super().cast(x, dtype)
        limits = np.iinfo(dtype)
        whole = np.trunc(x)
        undefined = ~((whole >= float(limits.min)) & (whole < float(limits.max)))
        return self._unless(undefined, np.where(undefined, 0, whole).astype(dtype), x)

    def _unless(self, undefined: np.ndarray, result: np.ndarray, operand: np.ndarray) -> np.ndarray:
        """Put hashes of the operand and the key where a result is not defined."""
        if not np.any(undefined):
            return result
        self.is_defined = False
        # With at least one axis, NumPy does not warn of overflow, which is intended here.
        bits = np.atleast_1d(operand).astype(np.float64).view(np.uint64)
        mixed = (bits + self._key) * _ODD
        mixed = (mixed ^ (mixed >> _HALF)) * _ODD
        hashed = (mixed >> _HALF).astype(result.dtype).reshape(operand.shape)
        return np.where(undefined, hashed, result)
