"""An evaluation as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl_systems.reporting import format_table, percent


def size_tables(evaluation: Mapping[str, Any]) -> str:
    """Format the sizes of all policies, then those of each policy by project and by image."""
    header = ["", "modules", "bytes", "default", "change", "exec", "worse", "seconds"]
    rows, parts = [], []
    for policy in evaluation["policies"]:
        rows.append([*_size_cells(policy["policy"], policy), f"{policy['seconds']:.1f}"])
        if "never_worse" in policy:
            better = policy["never_worse"]
            seconds = f"{policy['seconds'] + better['extra_seconds']:.1f}"
            totals = {**policy, **better, "worse_modules": 0}
            rows.append([*_size_cells("  never worse", totals), seconds])
            parts.append(
                f"{policy['policy']}, never worse: the default's object kept for "
                f"{better['default_kept']} of {policy['modules']} modules; compiling twice took "
                f"{better['extra_seconds']:.1f} s more, {better['cpu_ratio']:.2f} times the CPU "
                "time"
            )
    for policy in evaluation["policies"]:
        if policy["is_default"]:
            continue
        projects = [_size_cells(project["project"], project) for project in policy["projects"]]
        parts.append(format_table([policy["policy"], *header[1:-1]], projects))
        if policy.get("images"):
            parts.append(_image_table(policy["policy"], policy["images"]))
    return "\n\n".join([format_table(["policy", *header[1:]], rows), *parts])


def _image_table(policy: str, images: Sequence[Mapping[str, Any]]) -> str:
    """Format by how much linked images differ from the default's."""
    parts = ("text", "unwind", "rodata", "file")
    rows, columns = [], []
    for image in images:
        sizes = [(image[f"{part}_bytes"], image[f"default_{part}_bytes"]) for part in parts]
        loaded = tuple(map(sum, zip(*sizes[:3], strict=True)))
        changes = [size / default - 1 if default else 0.0 for size, default in (*sizes, loaded)]
        columns.append(changes)
        rows.append([image["project"], *(f"{change:+.2%}" for change in changes)])
    means = [statistics.fmean(column) for column in zip(*columns, strict=True)]
    rows.append(["(mean)", *(f"{mean:+.2%}" for mean in means)])
    return format_table([f"{policy}, linked", *parts, "text+unwind+rodata"], rows)


def _size_cells(name: str, totals: Mapping[str, Any]) -> list[str]:
    return [
        name,
        str(totals["modules"]),
        f"{totals['size_bytes']:,}",
        f"{totals['default_size_bytes']:,}",
        percent(totals["size_bytes"], totals["default_size_bytes"]),
        percent(totals["exec_bytes"], totals["default_exec_bytes"]),
        str(totals["worse_modules"]),
    ]
