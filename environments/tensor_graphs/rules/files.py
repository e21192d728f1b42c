"""The rules that come with this package, and rules in files of the same form.

`rules.json` says how it was made and holds the rules: some were generated (`generation`), most were
written by people (`library`). Each was verified as `verified_by` says, in that many `instances`;
`may_change_nonfinite` is true unless it was found to keep NaN and infinity there (`nonfinite`).
`sha256` says what the rule was then: a rule that was changed since is refused.

A reader need not believe any of that. When a file is loaded, each rule that is neither the
package's own nor verified on this machine before is verified. A file with a wrong rule is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from environments.caches import cache_directory
from environments.errors import UserError
from environments.tensor_graphs.rules.language.rule import Rule, RuleError

PATH = pathlib.Path(__file__).with_name("rules.json")
GENERATED, WRITTEN, IMPORTED = "generated", "written", "imported"

_OF_THE_FILE = frozenset({"origin", "instances", "sha256"})
_NUM_INSTANCES = 1000
_METHOD = 3
"""Changes when verification becomes stricter: what was verified before is verified again."""


@dataclasses.dataclass(frozen=True)
class RuleFile:
    """A file of rules.

    Attributes:
      rules: the rules.
      origins: GENERATED, WRITTEN or IMPORTED, by name of the rule.
      made: how the file was made.
      instances: in how many instances a rule was verified, by its name; not known for all.
    """

    rules: tuple[Rule, ...]
    origins: Mapping[str, str]
    made: Mapping[str, Any]
    instances: Mapping[str, int] = dataclasses.field(default_factory=dict)


def load(path: str | pathlib.Path | None = None, strict: bool = False) -> tuple[Rule, ...]:
    """Returns the rules of a file, all of them verified.

    Args:
      path: the file; by default the one that comes with the package.
      strict: leaves out rules that may change NaN or infinity.

    Raises:
      UserError: there is no such file, it holds no rules, or one of them is wrong.
    """
    rules = _own().rules
    if path is not None:
        rules = tuple(_verified(one, path) for one in read(path).rules)
    return tuple(one for one in rules if not (strict and one.may_change_nonfinite))


def read(path: str | pathlib.Path | None = None) -> RuleFile:
    """Reads a file of rules as it is; nothing is verified.

    Raises:
      UserError: there is no such file, it holds no rules, or one of them was changed after it was
        verified.
    """
    path = PATH if path is None else pathlib.Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is no file of rules: expected JSON, found {error}") from error
    entries = data.get("rules") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise UserError(f"{path} is no file of rules: expected an object with a list 'rules'")
    rules: list[Rule] = []
    origins: dict[str, str] = {}
    instances: dict[str, int] = {}
    for entry in entries:
        rule = _rule(entry, path)
        if rule.name in origins:
            raise UserError(f"{path}: two rules are called {rule.name}; rename one")
        rules.append(rule)
        origins[rule.name] = _origin(entry, path)
        if "instances" in entry:
            instances[rule.name] = int(entry["instances"])
    return RuleFile(tuple(rules), origins, data.get("made", {}), instances)


def _origin(entry: Mapping[str, Any], path: pathlib.Path) -> str:
    origin = entry.get("origin", WRITTEN)
    if origin not in (GENERATED, WRITTEN, IMPORTED):
        raise UserError(
            f"{path}: rule {entry['name']}: expected the origin {GENERATED!r}, {WRITTEN!r} or "
            f"{IMPORTED!r}, found {origin!r}"
        )
    return str(origin)


def _rule(entry: Mapping[str, Any], path: pathlib.Path) -> Rule:
    fields = {name: value for name, value in entry.items() if name not in _OF_THE_FILE}
    try:
        rule = Rule.from_dict(fields)
    except RuleError as error:
        raise UserError(f"{path}: {error}") from error
    expected, found = entry.get("sha256"), digest(rule)
    if expected not in (None, found):
        raise UserError(
            f"{path}: rule {rule.name} was changed after it was verified: expected sha256 "
            f"{str(expected)[:12]}…, found {found[:12]}…; without its sha256 it is verified anew"
        )
    return rule


def write(file: RuleFile, path: str | pathlib.Path) -> None:
    """Writes a file of rules; all at once, or not at all.

    Raises:
      UserError: it cannot be written.
    """
    path = pathlib.Path(path)
    entries = []
    for one in file.rules:
        entry = one.as_dict() | {"origin": file.origins[one.name]}
        if one.name in file.instances:
            entry |= {"instances": file.instances[one.name], "sha256": digest(one)}
        entries.append(entry)
    lines = ",\n".join(" " + json.dumps(one, ensure_ascii=False) for one in entries)
    made = json.dumps(file.made, indent=1, ensure_ascii=False)
    text = f'{{"made": {made},\n"rules": [\n{lines}\n]}}\n'
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def digest(rule: Rule) -> str:
    """Returns a hash of all that verification depends on."""
    parts = [*map(str, rule.source), "=>", *map(str, rule.target), "if", *map(str, rule.conditions)]
    parts += ["constants", *sorted(rule.constants)]
    return hashlib.sha256("\n".join([str(_METHOD), *parts]).encode()).hexdigest()


def _verified(rule: Rule, path: str | pathlib.Path) -> Rule:
    """The rule with what was found out about it: before, on this machine, or now."""
    key = digest(rule)
    known = _own_by_digest().get(key)
    if known is not None:
        return rule.as_verified(known)
    record = _directory() / f"{key}.json"
    try:
        return dataclasses.replace(rule, **json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        pass  # It was not verified here before.
    from environments.tensor_graphs.rules.verification.verify import verify

    verdict = verify(rule, _NUM_INSTANCES)
    if not verdict.is_right:
        raise UserError(f"{path}: rule {rule.name} is refused: {verdict.how}")
    marked = verdict.mark(rule)
    _remember(record, marked)
    return marked


@functools.lru_cache(maxsize=1)
def _own() -> RuleFile:
    return read(PATH)


@functools.lru_cache(maxsize=1)
def _own_by_digest() -> Mapping[str, Rule]:
    return {digest(one): one for one in _own().rules}


def _directory() -> pathlib.Path:
    """Where this machine remembers which rules it has verified."""
    return cache_directory() / "verified_rules"


def _remember(record: pathlib.Path, rule: Rule) -> None:
    fields = {name: getattr(rule, name) for name in ("verified_by", "may_change_nonfinite")}
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    except OSError:
        return  # Where nothing can be remembered, rules are verified each time.
