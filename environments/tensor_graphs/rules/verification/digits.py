"""Find out whether a rule may lose digits where large numbers cancel.

(x - c) · a has all its digits if x is near c, however large both are: x - c is exact then. But
x · a - c · a has lost them, since both products were rounded before they cancel. Real numbers do
not tell these two apart. So each instance of a rule is computed at points where numbers cancel: one
of its tensors is plus or minus something that the source computes, or another of its tensors, but
for a small rest. The ratio of the size of the numbers to that of the rest is one of RATIOS.

Both sides are computed in float32, and the source in float64 of the same numbers. The target loses
digits if its largest error is FACTOR times that of the source, and more than a few roundings of the
largest result. Errors are taken together over several points of one kind, because the error of a
single number may be small by chance. What was found is only believed if it is found again at new
points. A rule is marked if any of its instances loses digits; no mark means that none did.

The source must be the more exact side. A rule that loses digits in one direction gains them in the
other, and each direction is a rule of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.rules.language.computations import input_name
from environments.tensor_graphs.rules.verification.instances import Instance
from environments.tensor_graphs.rules.verification.points import choose, make_point, single

Point = dict[str, np.ndarray]

RATIOS = (1.0, 1e3, 1e6, 1e8)
"""The size of the numbers that cancel beside that of the rest; 1 stands for numbers of any kind."""

FACTOR = 10.0
_ROUNDINGS = 16
_POINTS_TO_BELIEVE = 7
_SCALES = (1e-3, 1.0, 1.0, 1e3)
_CENTERED = 0.8
_RANGE = (1e-30, 1e30)
_EPSILON = float(np.finfo(np.float32).eps)


@dataclasses.dataclass(frozen=True)
class _Setting:
    """What the points of one kind have in common.

    Attributes:
      ratio: one of RATIOS.
      scales: the size of what is random, by name of the tensor.
      centers: what the tensor's elements are near, in units of its scale; by name.
      cancelling: name of the tensor that is near something else; empty if there is none.
      rival: the place of what it is near.
      sign: 1, or -1 if it is near the negative.
      seed: chooses the elements of `rival` if it has more axes.
    """

    ratio: float
    scales: dict[str, float]
    centers: dict[str, float]
    cancelling: str
    rival: Ref
    sign: float
    seed: int


def digit_loss(instance: Instance, literals: Collection[str], rng: np.random.Generator) -> str:
    """Describe how the target loses digits at points of one kind; return "" if it does not.

    Nothing is found if the instance's numbers are not float32. `literals` are the constants whose
    number is part of the rule; nothing is near them.
    """
    names = [name for name, tensor in instance.inputs.items() if tensor.dtype == "float32"]
    names = [name for name in names if name not in instance.fills]
    if not names or any(tensor.dtype == "float64" for tensor in instance.inputs.values()):
        return ""
    setting = _setting(instance, names, literals, rng)
    if not _loss(instance, setting, [_point(instance, setting, rng)]):
        return ""
    points = [_point(instance, setting, rng) for _ in range(_POINTS_TO_BELIEVE)]
    return _loss(instance, setting, points)


def _setting(
    instance: Instance, names: Sequence[str], literals: Collection[str], rng: np.random.Generator
) -> _Setting:
    ratio = choose(rng, RATIOS)
    scales = {name: choose(rng, _SCALES) for name in names}
    centers = {name: choose(rng, (-1.0, 0.0, 0.0, 1.0)) * ratio for name in names}
    if ratio == 1.0:
        return _Setting(ratio, scales, dict.fromkeys(names, 0.0), "", Ref(0), 1.0, 0)
    cancelling = choose(rng, names)
    others = _others(instance, cancelling, literals)
    if not others:
        return _Setting(ratio, scales, centers, "", Ref(0), 1.0, 0)
    steps = instance.computation.steps
    inputs = [place for place in others if steps[place.node].op == INPUT]
    if inputs and len(inputs) < len(others) and rng.random() < 0.5:
        others = [place for place in others if place not in inputs]
    elif inputs:
        others = inputs
    target = others[rng.integers(len(others))]
    # What the other is computed from must not vary around 0, else the other does.
    for step in instance.computation.only([target])[0].steps:
        name = input_name(step)
        if name in centers and not centers[name]:
            centers[name] = ratio * float(rng.random() < _CENTERED)
    sign = choose(rng, (-1.0, 1.0))
    return _Setting(ratio, scales, centers, cancelling, target, sign, int(rng.integers(2**31)))


def _others(instance: Instance, name: str, literals: Collection[str]) -> list[Ref]:
    """Return the places of what the source computes, or is given, without a certain tensor."""
    computation = instance.computation
    needed = computation.below(instance.sources)
    depends: set[int] = set()
    others = []
    for number, step in enumerate(computation.steps):
        own_name = input_name(step)
        if own_name == name or not depends.isdisjoint(step.used):
            depends.add(number)
        elif number in needed and own_name not in literals:
            others += [
                Ref(number, output)
                for output, tensor in enumerate(step.types)
                if tensor is not None and tensor.dtype == "float32"
            ]
    return others


def _point(instance: Instance, setting: _Setting, rng: np.random.Generator) -> Point:
    point = make_point(instance, rng, lambda rng, shape: rng.standard_normal(shape))
    point = {name: single(array) for name, array in point.items()}
    for name, scale in setting.scales.items():
        # Points with one and the same center would have the same errors.
        center = setting.centers[name] * rng.uniform(0.5, 1.5)
        point[name] = single((point[name] + center) * scale)
    if not setting.cancelling:
        return point
    values = instance.computation.run(point, FLOATS)
    target = values[setting.rival.node][setting.rival.output].astype(np.float64)
    if target.size and np.all(np.isfinite(target)):
        shape = point[setting.cancelling].shape
        near = _fitted(target, shape, np.random.default_rng(setting.seed))
        rest = float(np.max(np.abs(near), initial=0.0)) / setting.ratio
        near = near + rest * rng.standard_normal(shape)
        with np.errstate(over="ignore"):
            point[setting.cancelling] = single(setting.sign * near)
    return point


def _fitted(array: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Give an array another shape: align axes of equal size, index the others, and broadcast.

    Axes are mostly aligned from the last on, as elementwise operators do; but a vector may also
    stand along another axis, as the mean of a normalization does.
    """
    sizes, index = [1] * len(shape), [0] * array.ndim
    aligned: list[int] = []
    end = len(shape)
    for axis in range(array.ndim - 1, -1, -1):
        size = array.shape[axis]
        places = [place for place in range(end) if shape[place] == size > 1]
        if places:
            end = places[-1] if rng.random() < 0.5 else choose(rng, places)
            sizes[end] = size
            aligned.append(axis)
        else:
            index[axis] = int(rng.integers(size))
    where = tuple(slice(None) if axis in aligned else place for axis, place in enumerate(index))
    return np.broadcast_to(array[where].reshape(sizes), shape)


def _loss(instance: Instance, setting: _Setting, points: Sequence[Point]) -> str:
    """Describe the loss at some points taken together; return "" if there is none."""
    worst: dict[int, np.ndarray] = {}
    for point in points:
        for number, errors in enumerate(_errors(instance, point)):
            worst[number] = np.maximum(worst.get(number, np.zeros(3)), errors)
    for number, (source, target, size) in worst.items():
        if target > FACTOR * source + _ROUNDINGS * _EPSILON * size:
            return (
                f"output {number} is off by {target:.1e} instead of {source:.1e}, where numbers "
                f"are {setting.ratio:.0e} times what is left"
            )
    return ""


def _errors(instance: Instance, point: Point) -> list[np.ndarray]:
    """Return, for each output, the largest error of source and target, and the largest result.

    Points at which anything is near the end of the numbers' range are left out: overflow and
    underflow are another matter.
    """
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array
            for name, array in point.items()}  # fmt: skip
    exact = instance.computation.run(wide, FLOATS)
    single = instance.computation.run(point, FLOATS)
    if not all(_is_usual(array) for arrays in exact for array in arrays):
        return []
    errors = []
    pairs = zip(instance.outputs(exact), instance.outputs(single), strict=True)
    for (right, _), (source, target) in pairs:
        if right.dtype.kind != "f":
            errors.append(np.zeros(3))
            continue
        fits = np.isfinite(right) & np.isfinite(source) & np.isfinite(target)
        with np.errstate(all="ignore"):
            sizes = [np.abs(array) for array in (source - right, target - right, right)]
        errors.append(np.array([np.max(array, where=fits, initial=0.0) for array in sizes]))
    return errors


def _is_usual(array: np.ndarray) -> bool:
    if array.dtype.kind != "f":
        return True
    sizes = np.abs(array[np.isfinite(array) & (array != 0)])
    return bool(np.all((sizes > _RANGE[0]) & (sizes < _RANGE[1])))
