"""Settings as frozen dataclasses, which give each field its type, default and explanation once.

The options of the command line, the fields of `--set field=value` and the keyword arguments of the
Python API are made from them. A field's explanation is read from the section "Attributes:" of the
class's docstring.
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from environments import files
from environments.errors import UsageError

MAX_WHOLE = (1 << 31) - 1
"""The largest whole number that a setting may be."""

_WIDTH = 100
# Fields that --set does not offer: --seed sets the seeds, the BC-Max loop chooses the margin, and
# the problem names its own features.
_SET_OTHERWISE = frozenset({"seed", "margin", "baseline_feature", "scope_feature"})

Settings = Mapping[str, Any]
"""Settings dataclasses by group: "loop", "agent", "environment", …"""

Made = TypeVar("Made")


def option(
    default: Any = dataclasses.MISSING,
    *,
    flag: str = "",
    metavar: str = "",
    choices: Sequence[str | int] = (),
    minimum: int | None = None,
    positive: bool = False,
    parse: Callable[[str], Any] | None = None,
    expected: str = "",
) -> Any:
    """Return a dataclass field that says how the command line shows and parses it.

    Args:
      default: the field's default; without one, a value must be given.
      flag: name of the option; "" to make it from the field's name.
      metavar: placeholder for the value in help texts.
      choices: the allowed values; () if any value is allowed.
      minimum: the least whole number allowed.
      positive: whether a number must be above 0.
      parse: text -> value; raises ValueError for text that is no value. None to parse by the type.
      expected: what `parse` accepts, for error messages.
    """
    about = {"flag": flag, "metavar": metavar, "choices": choices, "minimum": minimum}
    return dataclasses.field(
        default=default,
        metadata={**about, "positive": positive, "parse": parse, "expected": expected},
    )


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a dataclass.

    Attributes:
      name: name of the field.
      kind: type of the field.
      default: value of the field if none is given; `dataclasses.MISSING` if one must be given.
      explanation: the field's entry in the class's docstring.
      about: metadata of the field; see `option`.
    """

    name: str
    kind: Any
    default: Any
    explanation: str
    about: Mapping[str, Any]

    @property
    def flag(self) -> str:
        """Name of the option."""
        return self.about.get("flag") or "--" + self.name.replace("_", "-")

    @property
    def is_repeated(self) -> bool:
        """Whether the field takes any number of values."""
        arguments = typing.get_args(self.kind)
        return typing.get_origin(self.kind) is tuple and arguments[-1:] == (Ellipsis,)

    @property
    def element(self) -> Any:
        """Type of the value, without None; if there are several values, the type of each."""
        kind = typing.get_args(self.kind)[0] if self.is_repeated else self.kind
        if isinstance(kind, types.UnionType):
            (kind,) = (
                alternative
                for alternative in typing.get_args(kind)
                if alternative is not types.NoneType
            )
        return kind

    def converted(self, value: Any) -> Any:
        """Convert a value given in Python to the field's type."""
        if self.element is pathlib.Path and isinstance(value, str):
            try:
                return self.parse(value)
            except ValueError as error:
                raise UsageError(f"{self.name}: {error}, found {value[:80]!r}") from None
        return tuple(value) if self.is_repeated and isinstance(value, list) else value

    def parse(self, text: str) -> Any:
        """Parse one value.

        Raises:
          ValueError: the text is no value of the field; the message says what was expected.
        """
        parse, expected = _PARSERS.get(self.element, (str, ""))
        parse, expected = self.about.get("parse") or parse, self.about.get("expected") or expected
        try:
            return parse(text)
        except ValueError:
            raise ValueError(f"expected {expected}") from None


def fields_of(settings: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass; for an instance, its values stand in for the defaults."""
    kind = settings if isinstance(settings, type) else type(settings)
    kinds = typing.get_type_hints(kind)
    explained = _explanations(kind)
    return tuple(
        Field(
            field.name,
            kinds[field.name],
            field.default if settings is kind else getattr(settings, field.name),
            explained.get(field.name, ""),
            field.metadata,
        )
        for field in dataclasses.fields(kind)
    )


def make(kind: type[Made], values: Mapping[str, Any]) -> Made:
    """Make a dataclass from keyword arguments; paths may be strings, tuples may be lists.

    Raises:
      UsageError: there is no such field, or a required one is missing.
    """
    fields = {field.name: field for field in fields_of(kind)}
    for name in values:
        if name not in fields:
            raise UsageError(f"expected one of {', '.join(fields)}; found {name!r}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in values:
            raise UsageError(f"expected {name}, found none: {field.explanation}")
    return kind(**{name: fields[name].converted(value) for name, value in values.items()})


def as_options(settings: Any) -> list[str]:
    """Return the command-line options that make the same dataclass; defaults are left out."""
    words: list[str] = []
    for field, its in zip(fields_of(type(settings)), fields_of(settings), strict=True):
        if its.default == field.default:
            continue
        if its.kind is bool:
            words.append(field.flag if its.default else field.flag.replace("--", "--no-", 1))
            continue
        for value in its.default if field.is_repeated else [its.default]:
            text = (
                "=".join(map(shown, value)) if field.is_repeated and type(value) is tuple else value
            )
            words += [field.flag, shown(text)]
    return words


def with_values(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with some values replaced.

    Args:
      settings: dataclasses by group.
      values: new values by name of the field; text is parsed, anything else is taken as it is.

    Raises:
      UsageError: there is no such field, a text is no value of its field, or a number is out of its
        range. Ranges of fields that depend on others are for those who use them to check.
    """
    fields = {
        field.name: (group, field)
        for group, config in settings.items()
        for field in _reached(config)
    }
    changed: dict[str, dict[str, Any]] = {group: {} for group in settings}
    for name, value in values.items():
        if name not in fields:
            raise UsageError(
                f"settings: expected one of the fields below, found {name!r}\n{describe(settings)}"
            )
        group, field = fields[name]
        value = _parsed(field, value) if isinstance(value, str) else value
        _check_range(field, value)
        changed[group][name] = value
    return {
        group: dataclasses.replace(config, **changed[group]) for group, config in settings.items()
    }


def with_seed(settings: Settings, seed: int) -> dict[str, Any]:
    """Return the settings with this seed in each group that has a field `seed`."""
    return {
        group: dataclasses.replace(config, seed=seed) if hasattr(config, "seed") else config
        for group, config in settings.items()
    }


LATER = {"is_later": True}
"""Metadata of a field that settings got after runs with them were saved; see `as_json`."""


def as_json(settings: Settings) -> dict[str, Any]:
    """Return all fields of all groups, by name.

    Fields with the metadata `LATER` are left out while they have their defaults, so that runs which
    were saved before there were such fields can be resumed.
    """
    fields: dict[str, Any] = {}
    for config in settings.values():
        fields |= dataclasses.asdict(config)
    for name, default in later_defaults(settings).items():
        if fields[name] == default:
            del fields[name]
    return fields


def later_defaults(settings: Settings) -> dict[str, Any]:
    """Return the defaults of all fields with the metadata `LATER`, which earlier runs had."""
    return {
        field.name: field.default
        for config in settings.values()
        for field in dataclasses.fields(config)
        if field.metadata.get("is_later")
    }


def describe(settings: Settings, without: Collection[str] = ()) -> str:
    """Return the fields that --set offers but those `without`, with explanations, as help text."""
    lines = []
    for config in settings.values():
        for field in _reached(config):
            if field.name in without:
                continue
            text = f"  {field.name}={shown(field.default)}  {field.explanation}"
            lines.append(textwrap.fill(text, _WIDTH, subsequent_indent="      "))
    return "\n".join(lines)


def shown(value: Any) -> str:
    """Format a value as a user would write it after `field=`."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reached(settings: Any) -> list[Field]:
    return [field for field in fields_of(settings) if field.name not in _SET_OTHERWISE]


def _parsed(field: Field, text: str) -> Any:
    try:
        if not field.is_repeated:
            return field.parse(text)
        return tuple(field.parse(part.strip()) for part in text.split(",")) if text else ()
    except ValueError as error:
        several = " or several, separated by commas" if field.is_repeated else ""
        raise UsageError(
            f"--set {field.name}: {error}{several}, found {text[:80]!r}; the default is "
            f"{shown(field.default)}"
        ) from None


def _check_range(field: Field, value: Any) -> None:
    """Check numbers: finite, and if whole, from the field's minimum (0 by default) to MAX_WHOLE."""
    least = field.about.get("minimum") or 0
    for number in value if isinstance(value, tuple | list) else (value,):
        if type(number) is int and field.element is int:
            expected = f"a whole number from {least} to {MAX_WHOLE}"
            is_right = least <= number <= MAX_WHOLE
        else:
            expected = "a finite number"
            is_right = not isinstance(number, float) or isfinite(number)
        if not is_right:
            raise UsageError(
                f"--set {field.name}: expected {expected}, found {str(number)[:80]}; "
                f"the default is {shown(field.default)}"
            )


def _explanations(kind: type) -> dict[str, str]:
    """Return each field's entry under "Attributes:" in the docstrings of a class and its bases."""
    explanations: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(ancestor.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in textwrap.dedent(section).splitlines():
            if match := re.match(r"(\w+): (.*)", line):
                name = match[1]
                explanations[name] = match[2]
            elif name and line.startswith(" "):
                explanations[name] += " " + line.strip()
            else:
                name = ""
    return explanations


def _truth(text: str) -> bool:
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


_PARSERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    bool: (_truth, "true or false"),
    float: (float, "a number"),
    int: (int, "a whole number"),
    pathlib.Path: (files.checked_path, "the path of a file"),
    str: (str, "text"),
}
