"""The verb `tfrl export`, which writes a policy in the form in which others use it."""

from __future__ import annotations

import argparse
from typing import Any

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
    parser.add_argument("--policy", required=True, metavar="DIR|NAME", help="what to export")
    formats = [form for name in system_names() for form in find_system(name).export_formats]
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
    report, use = system.export(options.policy, options.format, options.compiler, options.output)
    compiler = f", for {report['compiler']}" if "compiler" in report else ""
    text = f"{report['path']}: {report['size_bytes']:,} bytes{compiler}\nuse it with: {use}"
    show_result(options, report, text)
    return 0
