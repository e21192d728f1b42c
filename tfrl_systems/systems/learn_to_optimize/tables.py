"""An evaluation as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrl_systems.reporting import format_table


def function_table(evaluation: Mapping[str, Any]) -> str:
    """Format how far off each policy is, and what it costs."""
    policies = evaluation["policies"]
    names = [name for name in ("cost", "mse", "msle") if name in policies[0]]
    rows = [
        [
            policy["policy"],
            *(f"{policy[name]:.3g}" for name in names),
            f"{policy['evaluations']:,}",
            f"{policy['microseconds_per_query']:.1f}",
        ]
        for policy in policies
    ]
    table = format_table([evaluation["function"], *names, "evaluations", "µs a query"], rows)
    return (
        f"{table}\n{evaluation['function_evaluations']:,} evaluations of the function in all, "
        f"{evaluation['truth_evaluations']:,} of them to find the least values"
    )
