"""The verb `tfrl export`, which writes a policy in the form in which others use it."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json

_DESCRIPTION = """\
Writes a policy in the form in which others use it.

  tfrl export --policy runs/my/policy --format clang-plugin --compiler clang-19 -o inliner.so
  clang-19 -Oz -fpass-plugin=./inliner.so -c x.c

clang-plugin is one file for one clang and needs nothing else installed. It decides where functions
are compiled for size (-Oz) and nowhere else. It is built with the headers of that clang's LLVM
(llvm-N-dev) and a C++ compiler. `tfrl build` does all of this by itself for a whole build.
"""
_FORMATS = ("clang-plugin",)


def add_parser(subparsers: Any) -> None:
    """Add `export` to the verbs."""
    parser = shared.add_verb(
        subparsers, "export", "a policy in the form in which others use it", _DESCRIPTION
    )
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    parser.add_argument("--policy", required=True, metavar="DIR|NAME", help="what to export")
    parser.add_argument("--format", required=True, choices=_FORMATS, help="the form")
    parser.add_argument(
        "--compiler",
        default="clang",
        metavar="CLANG",
        help="the clang that will load the plugin (default: %(default)s)",
    )
    parser.add_argument(
        *("-o", "--output"), type=pathlib.Path, required=True, metavar="PATH", help="what to write"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Export as the command line says."""
    from tfrl_systems.experiments.systems.inlining.plugins import export_plugin

    found = export_plugin(options.policy, options.compiler, options.output)
    if options.json:
        show_json(found)
        return 0
    show(f"{found['path']}: {found['size_bytes']:,} bytes, for {found['compiler']}")
    show(f"use it with: {options.compiler} -Oz -fpass-plugin={options.output.resolve()} -c x.c")
    return 0
