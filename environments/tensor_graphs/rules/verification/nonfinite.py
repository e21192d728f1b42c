"""Does a rule keep NaN and infinity where they are?

Verification compares numbers where the source has some. `x / y * y => x` passes, and yet it turns a
NaN into a number where y is 0. Such rules are right as arithmetic and still change what a model
says about an overflow, a division by zero or a missing value: they are marked.

A rule may change what is not finite if there are shapes, attributes and elements for which source
and target differ in that an element is NaN, inf or -inf in one and not the same in the other; or,
where an output is of integers or truth values, in any element. The elements looked at are, as NumPy
computes with them in float64,

  finite      0 and -0, and positive and negative numbers of magnitude 1e-3 to 1e3
  not finite  NaN, inf and -inf, but in tensors that the rule takes only as constants: weights are
              finite, and who uses the mark checks that they are

These differences do not count:

  overflow    a sum or a product in another order may leave the range of its type where numbers are
              near the end of it; so may a weight that another is multiplied into
  rounding    the last digits of a number, and the sign of a zero. An operator that has a pole there
              (1 / x, Log) can make an infinity of that: by what it is given, not by the rule
  NaN ranked  the larger of a number and a NaN is NaN here; ONNX leaves open which it is

Numbers that a rule reads out of a constant (`(full 2.0)`) and attributes are finite. Instances are
random, so a mark is a proof and its absence is not: no difference was found in as many instances as
the rule was verified in.
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
    """Says how source and target differ in NaN or infinity; empty if no difference is found.

    Args:
      instance: of a rule.
      constants: the variables that the rule takes only as constants.
      rng: draws the elements.
    """
    for _ in range(_POINTS_PER_INSTANCE):
        given = make_point(instance, rng, special)
        for name in constants:
            if given[name].dtype.kind == "f":
                given[name] = np.where(np.isfinite(given[name]), given[name], 1.0)
        with np.errstate(all="ignore"):
            found = instance.computation.run(given, FLOATS)
        for number, (source, target) in enumerate(instance.outputs(found)):
            differs = _differs(source, target)
            if np.any(differs):
                place = tuple(np.argwhere(differs)[0])
                return f"output {number} is {target[place]:.6g} instead of {source[place]:.6g}"
    return ""


def _differs(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Where NaN or infinity is not the same; where anything is not, of other types than floats."""
    if source.dtype.kind != "f":
        return source != target
    both_nan = np.isnan(source) & np.isnan(target)
    both_finite = np.isfinite(source) & np.isfinite(target)
    return ~(both_nan | both_finite | (source == target))
