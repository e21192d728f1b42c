"""Writes a decision policy as a C++ file, for the pass plugin of environments/inlining/plugin.

The file holds the model's tables and a function `decide`, whose decisions are those of
`CallSitePolicy`, bit for bit. Everything in it is a whole number, or a name that was checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy import votes

_NAME = re.compile(r"[A-Za-z0-9_]+")
_LINE_LENGTH = 16
# The limits of environments/inlining/plugin/model.h.
_MAX_UNITS = 1024
_MAX_WEIGHT = 1 << 24


def to_cpp(policy: Any) -> str:
    """Return the file.

    Args:
      policy: a `CallSitePolicy`.

    Raises:
      UserError: the policy's files hold something that no training writes.
    """
    for name in policy.feature_names:
        if not _NAME.fullmatch(name):
            raise UserError(
                f"policy {policy.name}: expected features with plain names, found {name!r}; "
                "train the policy again"
            )
    _, arrays = policy.parts
    features = ", ".join(f'"{name}"' for name in policy.feature_names)
    try:
        model = _networks(policy, arrays)
    except (IndexError, KeyError, ValueError, OverflowError) as error:
        raise UserError(
            f"policy {policy.name}: expected tables of whole numbers that fit each other, "
            f"found {error!r}; train the policy again"
        ) from error
    return f"""\
#include "model.h"
#include "policy.h"

namespace tfrl {{
namespace policy {{

const char *const Name = "{policy.fingerprint}";
const bool IsLlvms = false;
const bool HasMargin = {str(policy.baseline_place is not None).lower()};
const std::int64_t OwnMargin = {_int64(votes.steps_of(policy.margin))};
const char *const ScopeFeature = "{_scope(policy)}";
const std::size_t NumFeatures = {len(policy.feature_names)};
const char *const Features[] = {{{features}}};

{model}
{_decide(policy)}
}} // namespace policy
}} // namespace tfrl
"""


def _scope(policy: Any) -> str:
    """Return the feature that is 1 where the policy may depart; "" if it may elsewhere, too."""
    if policy.scope_place is None or policy.outside_margin < votes.NEVER:
        return ""
    name: str = policy.feature_names[policy.scope_place]
    return name


def _decide(policy: Any) -> str:
    """Return the function that adds the margin; see `CallSitePolicy` and `votes.half_steps`."""
    baseline, scope = policy.baseline_place, policy.scope_place
    if baseline is None:
        return """\
bool decide(const std::int64_t *Row, bool, std::int64_t) { return votes(Row) > 0; }
"""
    margin = "Margin"
    if scope is not None:
        outside = _int64(votes.steps_of(policy.outside_margin))
        margin = f"Row[{scope}] == 1 ? Margin : {outside}"
    return f"""\
bool decide(const std::int64_t *Row, bool, std::int64_t Margin) {{
  const bool Inlines = Row[{baseline}] > 0;
  const std::int64_t Steps = {margin};
  if (Steps >= {_int64(votes.steps_of(votes.NEVER))})
    return Inlines; // whatever the votes are
  const std::int64_t Added = 2 * Steps * {policy.num_models} + 1;
  return 2 * votes(Row) + (Inlines ? Added : -Added) > 0;
}}
"""


def _networks(policy: Any, arrays: Mapping[str, np.ndarray]) -> str:
    num_layers = sum(name.startswith("weights_") for name in arrays)
    layers = [(arrays[f"weights_{i}"], arrays[f"biases_{i}"]) for i in range(num_layers)]
    sizes = [len(arrays["start"]), *(weights.shape[2] for weights, _ in layers)]
    if max(sizes) > _MAX_UNITS or any(
        weights.shape[1:] != pair
        for (weights, _), pair in zip(layers, zip(sizes, sizes[1:], strict=False), strict=True)
    ):
        raise ValueError("layers that do not fit each other")
    members, counts = range(policy.num_models), []
    knots: list[str] = []
    for segments in zip(
        *(arrays[n].tolist() for n in ("start", "base", "rise", "run")), strict=True
    ):
        rows = list(zip(*segments, strict=True))
        while len(rows) > 1 and rows[-1] == rows[-2] and rows[-1][2] == 0:
            rows.pop()  # unused segments repeat the last one
        counts.append(str(len(rows)))
        knots += [f"{{{', '.join(map(_int64, row))}}}" for row in rows]
    weights = [_floats(array[member] for array, _ in layers) for member in members]
    biases = [_floats(array[member] for _, array in layers) for member in members]
    return f"""\
constexpr Knot Knots[] = {_table(knots)};
constexpr int NumKnots[] = {_table(counts)};
constexpr int Sizes[] = {_table(map(str, sizes))};
constexpr float Weights[][{len(weights[0])}] = {{{", ".join(map(_table, weights))}}};
constexpr float Biases[][{len(biases[0])}] = {{{", ".join(map(_table, biases))}}};

static std::int64_t votes(const std::int64_t *Row) {{
  double Inputs[{sizes[0]}];
  const Knot *First = Knots;
  for (int I = 0; I < {sizes[0]}; First += NumKnots[I++])
    Inputs[I] = normalise(First, NumKnots[I], Row[I]);
  std::int64_t Sum = 0;
  for (int I = 0; I < {policy.num_models}; ++I)
    Sum += runNetwork(Weights[I], Biases[I], Sizes, {num_layers}, Inputs);
  return Sum;
}}
"""


def _floats(arrays: Iterable[np.ndarray]) -> list[str]:
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    if np.any(flat != np.rint(flat)) or np.any(np.abs(flat) > _MAX_WEIGHT):
        raise ValueError("weights beside the grid")
    return [f"{int(value)}.f" for value in flat]


def _int64(value: int) -> str:
    return f"INT64_C({int(value)})"


def _table(values: Iterable[str]) -> str:
    every = list(values)
    lines = [every[k : k + _LINE_LENGTH] for k in range(0, len(every), _LINE_LENGTH)]
    return "{\n" + ",\n".join(", ".join(line) for line in lines) + "}"
