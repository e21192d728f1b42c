"""Read from a compiler's errors which options it refuses.

A database may be written for another compiler or another machine: GCC's options, those of newer
clangs, of ARM, of WebAssembly. A compiler names the options that it does not know, and the corpus
compiles without them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from environments.inlining.corpus.compile_options import Group, can_be_refused, option_groups

# An error in a source has the place of the error in front; an error in options has not.
_ERROR = re.compile(r"^(?:[^:\n]+: )?(?:fatal )?error: (.*)$", re.MULTILINE)
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
_MACHINE = re.compile(r"-m|-E[BL]$")
_ALWAYS = re.compile(
    r"unknown (?:argument|clang option)|unsupported (?:option|argument) .* for target"
    r"|has no LLVM CPU feature"
)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An option that a compiler refuses; `always` if whatever the source and other options are."""

    group: Group
    always: bool


def read_refusals(messages: str, arguments: Sequence[str]) -> list[Refusal]:
    """Return the options that a compiler refused.

    Returns:
        For each error that names one of the options, this option; for an error that names another,
        those of the machine. Never those that say what a source means, such as `-D`.
    """
    groups = [group for group in option_groups(arguments) if can_be_refused(group)]
    refusals = []
    for error in _ERROR.finditer(messages):
        names = [first or second for first, second in _QUOTED.findall(error[1])]
        group = next(_named(names, groups), None)
        if group is not None:
            refusals.append(Refusal(group, bool(_ALWAYS.search(error[1]))))
        elif any(name.startswith(("-m", "-f")) for name in names):
            # Clang names an option by another name: -EB as -mbig-endian. It is one of a machine.
            refusals += [Refusal(group, False) for group in groups if _MACHINE.match(group[0])]
    return refusals


def _named(names: Sequence[str], groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the options that an error names: those with the very name first."""
    options = [(group[1] if group[0] == "-Xclang" else group[0], group) for group in groups]
    for is_meant in (_is_named, _has_feature_or_value, _begins):
        for name in names:
            yield from (group for option, group in options if is_meant(option, name))


def _is_named(option: str, name: str) -> bool:
    """Return whether a name is an option's, perhaps without dashes or without the value."""
    bare, text = name.lstrip("-"), option.lstrip("-")
    return text == bare or (bare.endswith("=") and text.startswith(bare))


def _has_feature_or_value(option: str, name: str) -> bool:
    """Return whether a name is the feature that an option turns on or off, or its value."""
    feature = _letters(name)
    if option.startswith("-m") and _letters(option[2:]) in (feature, f"no{feature}"):
        return True
    return option.startswith(("-m", "-f", "-std=")) and option.partition("=")[2] == name


def _begins(option: str, name: str) -> bool:
    """Return whether a name is an option's whose value follows at once, as -G of -G0."""
    return name.startswith("-") and len(name) > 1 and option.startswith(name)


def _letters(text: str) -> str:
    return re.sub(r"[-_.]", "", text)
