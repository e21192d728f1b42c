"""An evaluation as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrl_systems.reporting import format_table, percent


def model_tables(evaluation: Mapping[str, Any]) -> str:
    """Format what each policy makes of each model: a table for each model."""
    return "\n".join(map(_model_table, evaluation["models"]))


def _model_table(model: Mapping[str, Any]) -> str:
    header = [model["model"], "estimate ms", "change", "steps", "expansions", "of best", "seconds"]
    before_ms = model["estimated_ms_before"]
    rows = [["(the model)", f"{before_ms:.4f}", "", "", "", "", ""]]
    rows += [
        [
            policy["policy"],
            f"{policy['estimated_ms_after']:.4f}",
            percent(policy["estimated_ms_after"], before_ms),
            f"{policy['steps']}",
            f"{policy['expansions']:,}",
            f"{policy['expansions_of_best']:,}",
            f"{policy['seconds']:.1f}",
        ]
        for policy in model["policies"]
    ]
    if bound := model["bound"]:
        name = "bound" if bound["is_proved"] else "best known"
        estimated_ms = bound["estimated_ms"]
        change = percent(estimated_ms, before_ms)
        rows.append([name, f"{estimated_ms:.4f}", change, "", "", "", f"{bound['seconds']:.1f}"])
    return format_table(header, rows)
