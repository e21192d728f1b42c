"""Results as text for people, made from what `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrl_systems.experiments import Run
from tfrl_systems.experiments.reporting import describe_seconds, format_table
from tfrl_systems.experiments.system import System


def trained(system: System, run: Run) -> str:
    """Format the result of a training run: where the policy is, and how to use it."""
    facts = [
        ("policy", str(run.policy)),
        ("curves", f"tensorboard --logdir {run.workdir}/tensorboard"),
        system.outcome(run.result),
        ("time", describe_seconds(run.result["seconds"])),
        ("next", system.next_command(run.policy, run.plan.problem)),
    ]
    return "\n".join(f"{name:<13}{value}" for name, value in facts if value)


def benched(measured: Mapping[str, Any]) -> str:
    """Format benchmarks as a table with one row for each."""
    rows = []
    for row in measured["benchmarks"]:
        if "ratio" in row:
            times = [f"{row[key]:,.3f}" if key in row else "" for key in ("theirs_ms", "ours_ms")]
            rows.append([row["name"], f"{row['ratio']:,.3f} x", *times, str(row["against"])])
        else:
            rows.append([row["name"], f"{row['value']:,.3f} {row['unit']}", "", "", ""])
    return format_table(["benchmark", "", "theirs ms", "ours ms", "against"], rows)
