"""Settings as frozen dataclasses: each field is typed, defaulted and explained once, there.

From them come the options of the command line, the fields of `--set field=value`, and the keyword
arguments of the Python API. What a field means is read from the class's docstring, "Attributes:".
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from environments.errors import UsageError

_WIDTH = 100
# --seed sets the seeds, a loop chooses the margin, and a problem names its own features.
_SET_OTHERWISE = frozenset({"seed", "margin", "baseline_feature", "scope_feature"})

Settings = Mapping[str, Any]
"""Dataclasses by what they are about: "loop", "agent", "environment", …"""

Made = TypeVar("Made")


def option(
    default: Any = dataclasses.MISSING,
    *,
    flag: str = "",
    metavar: str = "",
    choices: Sequence[str] = (),
    minimum: int | None = None,
    positive: bool = False,
    parse: Callable[[str], Any] | None = None,
    expected: str = "",
) -> Any:
    """A dataclass field, with what the command line has to know besides its type.

    Args:
      default: the field's default; without one it must be given.
      flag: name of the option, if it is not the field's.
      metavar: what stands for the value in help texts.
      choices: the values that there are.
      minimum: the least whole number that makes sense.
      positive: whether a number has to be above 0.
      parse: text -> value, where the type does not say it; raises ValueError for others.
      expected: what `parse` takes, for messages.
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
      name: of the field.
      kind: its type.
      default: its value where nothing is given; `dataclasses.MISSING` where something must be.
      explanation: what the class's docstring says of it.
      about: its metadata; see `option`.
    """

    name: str
    kind: Any
    default: Any
    explanation: str
    about: Mapping[str, Any]

    @property
    def flag(self) -> str:
        """The option's name."""
        return self.about.get("flag") or "--" + self.name.replace("_", "-")

    @property
    def is_repeated(self) -> bool:
        """Whether there may be any number of values."""
        arguments = typing.get_args(self.kind)
        return typing.get_origin(self.kind) is tuple and arguments[-1:] == (Ellipsis,)

    @property
    def element(self) -> Any:
        """The type of the value, or of each of several; without None."""
        kind = typing.get_args(self.kind)[0] if self.is_repeated else self.kind
        if isinstance(kind, types.UnionType):
            (kind,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
        return kind

    def converted(self, value: Any) -> Any:
        """A value that was given in Python, as the field's type has it."""
        if self.element is pathlib.Path and isinstance(value, str):
            return pathlib.Path(value)
        return tuple(value) if self.is_repeated and isinstance(value, list) else value

    def parse(self, text: str) -> Any:
        """Reads one value.

        Raises:
          ValueError: it is none; the message says what was expected.
        """
        parse, expected = _PARSERS.get(self.element, (str, ""))
        parse, expected = self.about.get("parse") or parse, self.about.get("expected") or expected
        try:
            return parse(text)
        except ValueError:
            raise ValueError(f"expected {expected}") from None


def fields_of(settings: Any) -> tuple[Field, ...]:
    """The fields of a dataclass; of an instance, with its values as defaults."""
    kind = settings if isinstance(settings, type) else type(settings)
    kinds = typing.get_type_hints(kind)
    explained = _explanations(kind)
    return tuple(
        Field(
            one.name,
            kinds[one.name],
            one.default if settings is kind else getattr(settings, one.name),
            explained.get(one.name, ""),
            one.metadata,
        )
        for one in dataclasses.fields(kind)
    )


def make(kind: type[Made], given: Mapping[str, Any]) -> Made:
    """A dataclass from keyword arguments: strings do for paths, and any sequence for a tuple.

    Raises:
      UsageError: there is no such field, or one is missing.
    """
    fields = {one.name: one for one in fields_of(kind)}
    for name in given:
        if name not in fields:
            raise UsageError(f"expected one of {', '.join(fields)}; found {name!r}")
    for name, one in fields.items():
        if one.default is dataclasses.MISSING and name not in given:
            raise UsageError(f"expected {name}, found none: {one.explanation}")
    return kind(**{name: fields[name].converted(value) for name, value in given.items()})


def as_options(made: Any) -> list[str]:
    """The options with which the command line makes the same, without those that are defaults."""
    words: list[str] = []
    for one, its in zip(fields_of(type(made)), fields_of(made), strict=True):
        if its.default == one.default:
            continue
        if its.kind is bool:
            words.append(one.flag if its.default else one.flag.replace("--", "--no-", 1))
            continue
        for value in its.default if one.is_repeated else [its.default]:
            text = "=".join(map(str, value)) if one.is_repeated and type(value) is tuple else value
            words += [one.flag, shown(text)]
    return words


def with_values(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with other values.

    Args:
      settings: dataclasses by group.
      values: by name of the field; text is parsed, and anything else taken as it is.

    Raises:
      UsageError: there is no such field, or a text is no value of it.
    """
    group_of = {one.name: group for group, made in settings.items() for one in _reached(made)}
    changed: dict[str, dict[str, Any]] = {group: {} for group in settings}
    for name, value in values.items():
        if name not in group_of:
            raise UsageError(
                f"settings: expected one of the fields below, found {name!r}\n{describe(settings)}"
            )
        (field,) = (one for one in _reached(settings[group_of[name]]) if one.name == name)
        changed[group_of[name]][name] = _parsed(field, value) if isinstance(value, str) else value
    return {group: dataclasses.replace(made, **changed[group]) for group, made in settings.items()}


def with_seed(settings: Settings, seed: int) -> dict[str, Any]:
    """The same settings, with the seed in each group that has one."""
    return {
        group: dataclasses.replace(made, seed=seed)
        if any(one.name == "seed" for one in dataclasses.fields(made))
        else made
        for group, made in settings.items()
    }


def as_json(settings: Settings) -> dict[str, Any]:
    """All fields of all groups, by name."""
    found: dict[str, Any] = {}
    for made in settings.values():
        found |= dataclasses.asdict(made)
    return found


def describe(settings: Settings) -> str:
    """A list of the fields that can be set, with values and explanations, for help texts."""
    lines = []
    for made in settings.values():
        for one in _reached(made):
            text = f"  {one.name}={shown(one.default)}  {one.explanation}"
            lines.append(textwrap.fill(text, _WIDTH, subsequent_indent="      "))
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A value as a user would write it behind `field=`."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reached(settings: Any) -> list[Field]:
    return [one for one in fields_of(settings) if one.name not in _SET_OTHERWISE]


def _parsed(field: Field, text: str) -> Any:
    try:
        if not field.is_repeated:
            return field.parse(text)
        return tuple(field.parse(part.strip()) for part in text.split(",")) if text else ()
    except ValueError as error:
        several = " or several, separated by commas" if field.is_repeated else ""
        raise UsageError(
            f"--set {field.name}: {error}{several}, found {text!r}; the default is "
            f"{shown(field.default)}"
        ) from None


def _explanations(kind: type) -> dict[str, str]:
    """What the section "Attributes:" of a docstring says, those of base classes included."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in textwrap.dedent(section).splitlines():
            if match := re.match(r"(\w+): (.*)", line):
                name = match[1]
                found[name] = match[2]
            elif name and line.startswith(" "):
                found[name] += " " + line.strip()
            else:
                name = ""
    return found


def _truth(text: str) -> bool:
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


_PARSERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    bool: (_truth, "true or false"),
    float: (float, "a number"),
    int: (int, "a whole number"),
    pathlib.Path: (pathlib.Path, "a path"),
    str: (str, "text"),
}
