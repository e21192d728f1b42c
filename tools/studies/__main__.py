"""Runs a study; see the package."""

from __future__ import annotations

import argparse
import inspect
import pathlib
import shlex
import sys
from collections.abc import Sequence

from environments.errors import UsageError
from tfrl_systems.experiments import Terminal
from tfrl_systems.experiments.arguments import add_fields, read_fields, whole_number
from tools import studies
from tools.running import exit_status
from tools.studies import runner


def _list_studies() -> None:
    for name in runner.STUDIES:
        about = inspect.cleandoc(runner.find_study(name).about)
        print(f"{name:16} {about.splitlines()[0]}")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of a study, whose name comes first.

    Raises:
      UsageError: there is no such study.
    """
    name, *rest = arguments
    study = runner.find_study(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.studies {name}",
        description=inspect.cleandoc(study.about),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_fields(parser, study.options)
    parser.add_argument(
        *("-o", "--output"), type=pathlib.Path, required=True, metavar="DIR",
        help="for table.md, pictures, records/ and runs/; what is there is not measured again",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=whole_number(1), default=1, metavar="N", help="trials at a time (default: 1)"
    )
    options = parser.parse_args(rest)
    options.study = name
    options.command = shlex.join(["python", "-m", "tools.studies", *arguments])
    return options


def run(options: argparse.Namespace) -> None:
    """Run a study and print its tables; exit with 1 if a record shows a fault."""
    study = runner.find_study(options.study)
    chosen = study.options(**read_fields(options, study.options))
    options.output.mkdir(parents=True, exist_ok=True)
    with Terminal() as terminal:
        records = runner.run(
            options.study, chosen, options.output, options.command, options.jobs, terminal
        )
    print((options.output / "table.md").read_text(encoding="utf-8"), end="")
    if any(study.is_wrong(record) for record in records):
        sys.exit(1)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(studies.__doc__)
        _list_studies()
        return 0
    try:
        options = parse_arguments(arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return exit_status(run, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
