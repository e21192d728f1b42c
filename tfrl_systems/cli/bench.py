"""The verb `tfrl bench`, which measures what a system's operations cost on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import add_fields, read_fields
from tfrl_systems.experiments.records import find_system
from tfrl_systems.reporting import Terminal, format_table


def add_parser(subparsers: Any) -> None:
    """Add `bench` to the verbs."""
    shared.add_system_verb(subparsers, "bench", "what things cost here", _fill, run)


def _fill(name: str, parser: shared.LazyParser) -> None:
    system = find_system(name)
    parser.description = system.examples.get("bench", f"Measures what {name} costs.\n")
    if system.bench_type is not None:
        add_fields(parser, system.bench_type)
    shared.add_json(parser)


def run(name: str, options: argparse.Namespace) -> int:
    """Measure as the command line says."""
    kind = find_system(name).bench_type
    settings = read_fields(options, kind) if kind is not None else {}
    with Terminal() as terminal:
        measured = experiments.bench(name, reporter=terminal, **settings)
    show_result(options, measured, _text(measured))
    return 0


def _text(measured: Mapping[str, Any]) -> str:
    """Format benchmarks as a table with one row for each."""
    rows = []
    for row in measured["benchmarks"]:
        if "ratio" in row:
            times = [f"{row[key]:,.3f}" if key in row else "" for key in ("theirs_ms", "ours_ms")]
            rows.append([row["name"], f"{row['ratio']:,.3f} x", *times, str(row["against"])])
        else:
            rows.append([row["name"], f"{row['value']:,.3f} {row['unit']}", "", "", ""])
    return format_table(["benchmark", "", "theirs ms", "ours ms", "against"], rows)
