"""`--set field=value`: the fields of configuration dataclasses, declared nowhere but there.

Names, types, defaults and explanations are read from the sources, so that a help text need not
import TensorFlow.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import pathlib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrl_systems.cli.console import UsageError

_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field that `--set` reaches.

    Attributes:
      group: key of the dataclass that it belongs to.
      name: of the field.
      kind: its type as written.
      default: its default as written.
      explanation: what the class says of it.
      is_class_default: whether the default is the class's own.
    """

    group: str
    name: str
    kind: str
    default: str
    explanation: str
    is_class_default: bool = True


def read_settings(
    classes: Mapping[str, tuple[str, str]], without: Sequence[str] = ()
) -> tuple[Setting, ...]:
    """The fields of dataclasses.

    Args:
      classes: (module, class) by group.
      without: fields that are set in another way.
    """
    return tuple(
        setting
        for group, (module, name) in classes.items()
        for setting in _read_class(group, module, name)
        if setting.name not in without
    )


def with_defaults(settings: Sequence[Setting], defaults: Mapping[str, str]) -> tuple[Setting, ...]:
    """The same with other defaults, as they would be written, where fields of that name are."""
    return tuple(
        dataclasses.replace(one, default=defaults[one.name], is_class_default=False)
        if one.name in defaults
        else one
        for one in settings
    )


def describe(settings: Sequence[Setting]) -> str:
    """A list for help texts and messages."""
    lines = []
    for one in settings:
        text = f"  {one.name}={_shown(one.default)}  {one.explanation}"
        lines.append(textwrap.fill(text, _WIDTH, subsequent_indent="      "))
    return "\n".join(lines)


def parse_settings(
    assignments: Sequence[str], settings: Sequence[Setting]
) -> dict[str, dict[str, Any]]:
    """Reads `field=value`.

    Args:
      assignments: as the user wrote them.
      settings: the fields that there are.

    Returns:
      Values by field, by group, of what was assigned or has another default than its class says; a
      group without any is there and empty.

    Raises:
      UsageError: there is no such field, or the value is none for it.
    """
    known = {one.name: one for one in settings}
    found: dict[str, dict[str, Any]] = {one.group: {} for one in settings}
    for one in settings:
        if not one.is_class_default:
            found[one.group][one.name] = ast.literal_eval(one.default)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set: expected field=value, found {assignment!r}")
        if name not in known:
            raise UsageError(
                f"--set: expected one of the fields below, found {name!r}\n{describe(settings)}"
            )
        setting = known[name]
        found[setting.group][name] = _parse(setting, text)
    return found


def _read_class(group: str, module: str, name: str) -> list[Setting]:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    explanations = _explanations(ast.get_docstring(found) or "")
    return [
        Setting(
            group,
            node.target.id,
            ast.unparse(node.annotation),
            ast.unparse(node.value),
            explanations.get(node.target.id, ""),
        )
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    ]


def _explanations(docstring: str) -> dict[str, str]:
    """The section "Attributes:" of a docstring."""
    _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    found: dict[str, str] = {}
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


def _shown(default: str) -> str:
    """A default as a user would write it behind `field=`."""
    value = ast.literal_eval(default)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(setting: Setting, text: str) -> Any:
    element = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", setting.kind)
    try:
        if element is None:
            return _PARSERS[setting.kind](text)
        parts = [part.strip() for part in text.split(",")] if text else []
        return tuple(_PARSERS[element[1]](part) for part in parts)
    except ValueError:
        what = f"{element[1]}s, separated by commas" if element else setting.kind
        raise UsageError(
            f"--set {setting.name}: expected {what}, found {text!r}; the default is "
            f"{_shown(setting.default)}"
        ) from None


def _parse_bool(text: str) -> bool:
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _parse_bool,
    "float": float,
    "int": int,
    "str": str,
}
