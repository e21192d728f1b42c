"""Find out whether a rule keeps NaN and infinity as they are.

Verification compares elements only where the source's are finite. So `x / y * y => x` passes,
although it turns a NaN into a number where y is 0. Such rules are right as arithmetic, but they
change what a model returns for an overflow, a division by zero or a missing value. They are marked.

A rule may change nonfinite values if, for some shapes, attributes and elements, source and target
differ as follows: an element is NaN, inf or -inf on one side and not the same on the other. In
outputs of integers or truth values, any difference counts. Both sides are computed by NumPy in
float64, with these elements:

  finite      0 and -0, and positive and negative numbers of magnitude 1e-3 to 1e3
  not finite  NaN, inf and -inf, except in tensors that the rule takes only as constants: weights
              are finite, and the user of the mark checks that they are

These differences do not count:

  overflow    a sum or a product in another order may overflow if its numbers are near the end of
              their type's range; so may the product of two weights
  rounding    the last digits of a number, and the sign of a zero. An operator with a pole at zero
              (1 / x, Log) may turn such a difference into an infinity, but the cause is its input
  NaN ranked  the larger of a number and a NaN is NaN here; ONNX does not define which it is

Attributes, and numbers that a rule takes from a constant (`(full 2.0)`), are finite. Instances are
random, so a mark is a proof, but its absence is not. It only means that no difference was found in
the instances in which the rule was verified.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.rules.verification.instances import Instance
from environments.tensor_graphs.rules.verification.points import make_point, special

_POINTS_PER_INSTANCE = 2


def nonfinite_change(
    instance: Instance, constants: Collection[str], rng: np.random.Generator
) -> str:
    """Describe how source and target differ in NaN or infinity; return "" if they do not."""
    for _ in range(_POINTS_PER_INSTANCE):
        point = make_point(instance, rng, special)
        for name in constants:
            if point[name].dtype.kind == "f":
                point[name] = np.where(np.isfinite(point[name]), point[name], 1.0)
        values = instance.computation.run(point, FLOATS)
        for number, (source, target) in enumerate(instance.outputs(values)):
            differs = _differs(source, target)
            if np.any(differs):
                place = tuple(np.argwhere(differs)[0])
                return f"output {number} is {target[place]:.6g} instead of {source[place]:.6g}"
    return ""


def _differs(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return where floats differ in NaN or infinity, and where other types differ at all."""
    if source.dtype.kind != "f":
        return source != target
    both_nan = np.isnan(source) & np.isnan(target)
    both_finite = np.isfinite(source) & np.isfinite(target)
    return ~(both_nan | both_finite | (source == target))
