"""Policies as the C++ file that a plugin is compiled with."""

from __future__ import annotations

import re

from environments.errors import UserError
from environments.inlining.heuristics import Policy

PolicySource = str
"""The file policy.cpp of a policy. It defines what policy.h declares."""


def source_of(policy: Policy) -> PolicySource:
    """Return a policy in the form that goes into a plugin.

    Args:
      policy: one that is not learned, or one that has a method `to_cpp`, which returns the file.

    Raises:
      UserError: it cannot be compiled in.
    """
    to_cpp = getattr(policy, "to_cpp", None)
    return heuristic_source(policy.name) if to_cpp is None else to_cpp()


def heuristic_source(name: str) -> PolicySource:
    """Return the source of a policy that is not learned; see `heuristics.make_heuristic`.

    Raises:
      UserError: it cannot be compiled in, or there is none of that name.
    """
    rules = {"default": "LlvmInlines", "always": "true", "never": "false"}
    if match := re.fullmatch(r"cost<(-?\d{1,9})", name):
        features, rule = '"cost_estimate"', f"Row[0] < {match[1]}"
    elif name in rules:
        features, rule = '""', rules[name]
    else:
        raise UserError(
            "policy: expected one that bc_max learned, or one of default, always, never, cost<N; "
            f"found {name!r}, which cannot be compiled into a plugin"
        )
    return f"""\
#include "policy.h"

namespace tfrl {{
namespace policy {{

const char *const Name = "{name}";
const bool IsLlvms = {str(name == "default").lower()};
const bool HasMargin = false;
const std::int64_t OwnMargin = 0;
const char *const ScopeFeature = "";
const std::size_t NumFeatures = {int("cost" in name)};
const char *const Features[] = {{{features}}};

bool decide(const std::int64_t *Row, bool LlvmInlines, std::int64_t) {{
  (void)Row, (void)LlvmInlines;
  return {rule};
}}

}} // namespace policy
}} // namespace tfrl
"""
