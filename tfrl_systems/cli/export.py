"""The verb `tfrl export`, which writes a policy in the form in which others use it."""

from __future__ import annotations

import argparse
from typing import Any

from environments.errors import UsageError
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import path_of_file
from tfrl_systems.experiments.records import find_system, system_names


def add_parser(subparsers: Any) -> None:
    """Add `export` to the verbs."""
    summary = "a policy in the form in which others use it"
    parser = shared.add_verb_of_few(subparsers, "export", summary)
    parser.description = "Writes a policy in the form in which others use it.\n\n"
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    systems = [system for system in map(find_system, system_names()) if system.export_formats]
    defaults = "".join(map(shared.default_of, systems))
    parser.add_argument("--policy", metavar="DIR|NAME", help=f"what to export{defaults}")
    formats = [form for system in systems for form in system.export_formats]
    parser.add_argument("--format", required=True, choices=formats, help="the form")
    parser.add_argument(
        "--compiler",
        metavar="CLANG",
        help="the clang that will load the plugin (default: clang); for mlgo, one of the LLVM that "
        "will read the model (default: embedded)",
    )
    parser.add_argument(
        *("-o", "--output"), type=path_of_file, required=True, metavar="PATH", help="what to write"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Export as the command line says."""
    systems = map(find_system, system_names())
    system = next(system for system in systems if options.format in system.export_formats)
    policy = options.policy or system.default_policy
    if not policy:
        raise UsageError(
            f"export: expected --policy with --format {options.format}, found none; "
            f"name a directory that tfrl train {system.name} wrote"
        )
    report, use = system.export(policy, options.format, options.compiler, options.output)
    compiler = f", for {report['compiler']}" if "compiler" in report else ""
    text = f"{report['path']}: {report['size_bytes']:,} bytes{compiler}\nuse it with: {use}"
    show_result(options, report, text)
    return 0
