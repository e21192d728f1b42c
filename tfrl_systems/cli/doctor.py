"""The verb `tfrl doctor`, which says what works on this machine and how to mend what does not."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from environments.caches.table import COMPILES
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import path_of_file

_DESCRIPTION = """\
Tries what the other verbs need: versions, the embedded compiler, each clang on PATH, ONNX, Ray,
the cache, the temporary directory. Ends with status 0 if everything works that needs nothing else
installed.

  tfrl doctor
  tfrl doctor --json > report.json    to attach to a bug report
"""


def add_parser(subparsers: Any) -> None:
    """Add `doctor` to the verbs."""
    parser = shared.add_verb(subparsers, "doctor", "what works on this machine", _DESCRIPTION)
    parser.add_argument(
        "--cache",
        type=path_of_file,
        default=COMPILES.path,
        metavar="FILE",
        help="the cache to look at (default: %(default)s)",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check this machine, and show the results; return 1 if something needed does not work."""
    from tfrl_systems.cli import doctor_checks

    checks, versions = doctor_checks.examine(options.cache), doctor_checks.versions()
    works = all(check.works for check in checks if check.needed)
    if options.json:
        described = list(map(dataclasses.asdict, checks))
        show_json({"works": works, "versions": versions, "checks": described})
        return 0 if works else 1
    width = max(map(len, [*versions, *(check.name for check in checks)]))
    for name, version in versions.items():
        show(f"       {name.ljust(width)}  {version}")
    for check in checks:
        mark = "ok" if check.works else "FAILS" if check.needed else "no"
        show(f"{mark:5}  {check.name.ljust(width)}  {check.found}")
        if check.remedy:
            show(f"{'':7}{'':{width}}  -> {check.remedy}")
    show("everything needed works" if works else "something needed does not work; see FAILS above")
    return 0 if works else 1
