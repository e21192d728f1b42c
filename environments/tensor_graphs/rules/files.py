"""Read and write files of rules, such as `rules.json`, which comes with this package.

`rules.json` holds the rules and says how it was made. Some rules were generated (`generation`),
most were written by people (`library`). For each rule, `verified_by` says how it was verified, and
`instances` in how many instances. `may_change_nonfinite` is false if none of these instances showed
a change of NaN or infinity (`nonfinite`), and `may_lose_digits` if none showed a loss of digits
(`digits`). `types` says for which groups of element types the rule is right (`wrapping`). `sha256`
is the digest of the rule that was verified; a rule that was changed since then is refused.

`load` does not trust these entries. It verifies each rule that is neither one of the package's own
nor was verified on this machine before. A file with a wrong rule is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from environments import files
from environments.caches.table import VERIFIED_RULES
from environments.errors import UserError
from environments.tensor_graphs.rules.language.rule import Rule, RuleError

PATH = pathlib.Path(__file__).with_name("rules.json")
GENERATED, WRITTEN, IMPORTED = "generated", "written", "imported"

_OF_THE_FILE = frozenset({"origin", "instances", "sha256"})
_FOUND = {"verified_by": str, "may_change_nonfinite": bool, "may_lose_digits": bool, "types": list}
"""What verification finds, by field of `Rule`."""
_FIELDS = {"name": str, "instances": int, **_FOUND}
_NUM_INSTANCES = 1000
_METHOD = 4
"""Changes when verification becomes stricter: what was verified before is verified again."""


@dataclasses.dataclass(frozen=True)
class RuleFile:
    """A file of rules.

    Attributes:
      rules: the rules.
      origins: GENERATED, WRITTEN or IMPORTED, by name of the rule.
      made: how the file was made.
      instances: number of instances in which a rule was verified, by name of the rule; rules for
        which it is not known are missing.
    """

    rules: tuple[Rule, ...]
    origins: Mapping[str, str]
    made: Mapping[str, Any]
    instances: Mapping[str, int] = dataclasses.field(default_factory=dict)


def load(path: str | pathlib.Path | None = None, strict: bool = False) -> tuple[Rule, ...]:
    """Return the rules of a file, all of them verified.

    Args:
      path: the file; by default the one that comes with the package.
      strict: whether to leave out rules that may change NaN or infinity, or may lose digits.

    Raises:
      UserError: the file does not exist, holds no rules, or holds a wrong rule.
    """
    rules = _own().rules
    if path is not None:
        rules = tuple(_verified(one, path) for one in read(path).rules)
    if not strict:
        return rules
    return tuple(one for one in rules if not (one.may_change_nonfinite or one.may_lose_digits))


def read(path: str | pathlib.Path | None = None) -> RuleFile:
    """Read a file of rules without verifying them.

    Raises:
      UserError: the file does not exist, holds no rules, or holds a rule that was changed after it
        was verified.
    """
    path = PATH if path is None else pathlib.Path(path)
    try:
        data = files.read_json(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is no file of rules: expected JSON, found {error}") from error
    entries = data.get("rules") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise UserError(f"{path} is no file of rules: expected an object with a list 'rules'")
    if wrong := files.misfit(data, {"made": dict}):
        raise UserError(f"{path} is no file of rules: {wrong}")
    rules: list[Rule] = []
    origins: dict[str, str] = {}
    instances: dict[str, int] = {}
    for entry in entries:
        if wrong := files.misfit(entry, _FIELDS):
            raise UserError(f"{path}: rule {str(entry.get('name'))[:80]!r}: {wrong}; correct it")
        rule = _rule(entry, path)
        if rule.name in origins:
            raise UserError(f"{path}: two rules are called {rule.name}; rename one")
        rules.append(rule)
        origins[rule.name] = _origin(entry, path)
        if "instances" in entry:
            instances[rule.name] = entry["instances"]
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
    """Write a file of rules: either all of it, or nothing.

    Raises:
      UserError: the file cannot be written.
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
    files.replace(path, text.encode())


def digest(rule: Rule) -> str:
    """Return a hash of everything that the verification of a rule depends on."""
    parts = [*map(str, rule.source), "=>", *map(str, rule.target), "if", *map(str, rule.conditions)]
    parts += ["constants", *sorted(rule.constants)]
    return hashlib.sha256("\n".join([str(_METHOD), *parts]).encode()).hexdigest()


def _verified(rule: Rule, path: str | pathlib.Path) -> Rule:
    """Return the rule with its verification: the package's, this machine's, or one made now."""
    key = digest(rule)
    known = _own_by_digest().get(key)
    if known is not None:
        return rule.as_verified(known)
    cache = VERIFIED_RULES.open()
    kept = cache.get(key)
    if kept is not None:
        fields = json.loads(kept)
        return dataclasses.replace(rule, **fields | {"types": tuple(fields["types"])})
    from environments.tensor_graphs.rules.verification.verify import verify

    verdict = verify(rule, _NUM_INSTANCES)
    if not verdict.is_right:
        raise UserError(f"{path}: rule {rule.name} is refused: {verdict.how}")
    marked = verdict.mark(rule)
    fields = {name: getattr(marked, name) for name in _FOUND}
    cache.put(key, json.dumps(fields).encode())
    return marked


@functools.lru_cache(maxsize=1)
def _own() -> RuleFile:
    return read(PATH)


@functools.lru_cache(maxsize=1)
def _own_by_digest() -> Mapping[str, Rule]:
    return {digest(one): one for one in _own().rules}
