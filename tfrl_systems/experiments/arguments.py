"""Command-line options made from settings dataclasses: for `tfrl`, and for scripts of your own."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from environments import files
from environments.errors import UsageError
from tfrl_systems.settings import Field, fields_of, shown

# What begins like a negative number, such as -5,5 or -inf or -1e3: a value, and no option's name.
_NEGATIVE = re.compile(r"-\.?\d|-inf|-nan", re.IGNORECASE)


def take_negatives(parser: argparse.ArgumentParser) -> None:
    """Let values of options begin with a minus; argparse knows plain negative numbers only."""
    parser._negative_number_matcher = _NEGATIVE


def add_fields(
    parser: argparse.ArgumentParser, settings: type, without: Collection[str] = ()
) -> None:
    """Add an option for each field of a dataclass, except those whose names are in `without`."""
    take_negatives(parser)
    for field in fields_of(settings):
        if field.name not in without:
            _add_field(parser, field)


def _add_field(parser: argparse.ArgumentParser, field: Field) -> None:
    text = _help(field)
    if field.kind is bool:
        action: Any = argparse.BooleanOptionalAction if field.default else "store_true"
        parser.add_argument(
            field.flag, dest=field.name, action=action, default=field.default, help=text
        )
        return
    parser.add_argument(
        field.flag,
        dest=field.name,
        action="append" if field.is_repeated else "store",
        required=field.default is dataclasses.MISSING,
        default=None if field.is_repeated else field.default,
        type=_parser_of(field),
        choices=field.about.get("choices") or None,
        metavar=field.about.get("metavar") or None,
        help=text,
    )


def _help(field: Field) -> str:
    text = field.explanation.rstrip(".").replace("%", "%%")
    if field.is_repeated and "repeated" not in text:
        text += "; may be repeated"
    if field.default in (dataclasses.MISSING, None, (), False) or "default" in text:
        return text
    return f"{text} (default: {shown(field.default)})"


def _parser_of(field: Field) -> Callable[[str], Any]:
    if (minimum := field.about.get("minimum")) is not None:
        return whole_number(minimum)

    def parse(text: str) -> Any:
        try:
            value = field.parse(text)
            if field.about.get("positive") and not 0 < value < float("inf"):
                raise ValueError("expected a number above 0")
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, found {text!r}") from None
        return value

    return parse


def read_fields(
    options: argparse.Namespace, settings: type, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return what the command line says of a dataclass's fields, as keyword arguments for it."""
    values = {field.name: getattr(options, field.name) for field in fields_of(settings)
             if field.name not in without}  # fmt: skip
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


def add_assignments(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option --set FIELD=VALUE, stored as `assignments`; `text` explains it."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="FIELD=VALUE",
        help=f"{text}; may be repeated",
    )


def read_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """Return the values of --set as `settings` for `experiments.train`.

    Raises:
      UsageError: an assignment has no "=".
    """
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set: expected field=value, found {assignment!r}")
        values[name] = text
    return values


def path_of_file(text: str) -> pathlib.Path:
    """Parse the path of a file."""
    try:
        return files.checked_path(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected the path of a file, found {text[:80]!r}"
        ) from None


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return a parser of integers that are at least `minimum`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {minimum} on, found {text!r}"
            )
        return value

    return parse
