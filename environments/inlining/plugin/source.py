"""Policies as the C++ header that the plugin is compiled with."""

from __future__ import annotations

import dataclasses
import re

from environments.errors import UserError


@dataclasses.dataclass(frozen=True)
class PolicySource:
    """A policy that can be compiled into the plugin.

    Attributes:
      name: for messages.
      text: the header policy.h. It defines in tfrl::policy what advisor.cpp uses.
    """

    name: str
    text: str


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
            "policy: expected a policy directory or one of default, always, never, cost<N; found "
            f"{name!r}, which cannot be compiled into a plugin"
        )
    return PolicySource(
        name,
        f"""\
#include <cstddef>
#include <cstdint>

namespace tfrl {{
namespace policy {{

constexpr const char *Name = "{name}";
constexpr bool IsLlvms = {str(name == "default").lower()};
constexpr std::size_t NumFeatures = {int("cost" in name)};
constexpr const char *Features[] = {{{features}}};

inline bool decide(const std::int64_t *Row, bool LlvmInlines) {{
  (void)Row, (void)LlvmInlines;
  return {rule};
}}

}} // namespace policy
}} // namespace tfrl
""",
    )
