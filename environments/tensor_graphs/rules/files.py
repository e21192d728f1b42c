"""Read and write files of rules, and the rules that come with this package.

Most of the package's rules were written by people. They stand in `library`, and there alone: who
edits a rule there changes what runs. `rules.json` holds what cannot be had from the library, the
generated rules (`generation`), and says how they were made. `ledger.json` says of each written rule
how it was verified, by the rule's digest. A rule that was edited has another digest, so that the
ledger says nothing of it. The rule counts as not verified then, and each machine verifies it before
it is used there. `tfrl rules generate -o PATH --reuse PATH …`, with the path of `rules.json` here,
verifies what is new and makes the two files again.

For each rule, `verified_by` says how it was verified, and `instances` in how many instances.
`may_change_nonfinite` is false if none of these instances showed a change of NaN or infinity
(`nonfinite`), and `may_lose_digits` if none showed a loss of digits (`digits`). `types` says for
which groups of element types the rule is right (`type_trials`). In a file of rules `sha256` is the
digest of the rule that was verified; a rule that was changed since then is refused.

`load` does not trust what a user's file says of its rules. It verifies each rule that was verified
neither for the package nor on this machine. A file with a wrong rule is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from environments import files
from environments.caches.table import VERIFIED_RULES
from environments.errors import UserError
from environments.tensor_graphs.rules import library
from environments.tensor_graphs.rules.language.rule import Rule, RuleError

PATH = pathlib.Path(__file__).with_name("rules.json")
LEDGER = PATH.with_name("ledger.json")
LIBRARY = PATH.with_name("library")
GENERATED, WRITTEN, IMPORTED = "generated", "written", "imported"

_OF_THE_FILE = frozenset({"origin", "instances", "sha256"})
_FIELDS = {
    "name": str,
    "instances": int,
    "verified_by": str,
    "may_change_nonfinite": bool,
    "may_lose_digits": bool,
    "types": list,
}
_NUM_INSTANCES = 1000
_METHOD = 4
"""Changes when verification becomes stricter: what was verified before is verified again."""


@dataclasses.dataclass(frozen=True)
class RuleFile:
    """A file of rules.

    Attributes:
      origins: GENERATED, WRITTEN or IMPORTED, by name of the rule.
      instances: number of instances in which a rule was verified, by name of the rule; rules for
        which it is not known are missing.
    """

    rules: tuple[Rule, ...]
    origins: Mapping[str, str]
    provenance: Mapping[str, Any]
    instances: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def verified(self) -> Mapping[str, tuple[Rule, int]]:
        """The rules that were verified, each with its number of instances, by digest."""
        rules = [rule for rule in self.rules if rule.name in self.instances]
        return {digest(rule): (rule, self.instances[rule.name]) for rule in rules}


def load(
    path: str | pathlib.Path | None = None, strict: bool = False, contrib: bool = False
) -> tuple[Rule, ...]:
    """Return the rules of a file, all of them verified; by default those of the package.

    With `strict`, rules are left out that may change NaN or infinity, or may lose digits. With
    `contrib`, those for operators that onnxruntime alone has are added.

    Raises:
      UserError: the file does not exist, holds no rules, or holds a wrong rule.
    """
    file = read(path, contrib)
    place, verified = (LIBRARY, file.instances) if file is _own(contrib) else (path, {})
    rules = tuple(
        rule if rule.name in verified else _verified(rule, f"{place}") for rule in file.rules
    )
    if not strict:
        return rules
    return tuple(rule for rule in rules if not (rule.may_change_nonfinite or rule.may_lose_digits))


def read(path: str | pathlib.Path | None = None, contrib: bool = False) -> RuleFile:
    """Read a file of rules, by default the package's rules, without verifying them.

    With `contrib`, the rules for operators that onnxruntime alone has are added.

    Raises:
      UserError: the file does not exist, holds no rules, or holds a rule that was changed after it
        was verified.
    """
    path = PATH if path is None else pathlib.Path(path)
    if path.exists() and path.samefile(PATH):
        return _own(contrib)
    file = _read(path)
    if not contrib:
        return file
    added = tuple(rule for rule in _own(True).rules if rule.name in contrib_names())
    origins = {**{rule.name: WRITTEN for rule in added}, **file.origins}
    return dataclasses.replace(file, rules=(*file.rules, *added), origins=origins)


@functools.cache
def contrib_names() -> frozenset[str]:
    """Return the names of the rules for operators that onnxruntime alone has."""
    return frozenset(rule.name for rule in library.rules_of(library.CONTRIB))


@functools.lru_cache(maxsize=2)
def _own(contrib: bool = False) -> RuleFile:
    """Return the package's rules: those of the library, then the others, then CONTRIB if asked."""
    ledger = _json(LEDGER)
    generated = _read(PATH)
    instances: dict[str, int] = {}

    def recorded(rule: Rule) -> Rule:
        record = ledger.get(digest(rule))
        if record is None:
            return rule
        instances[rule.name] = record["instances"]
        return rule.as_verified(record)

    # The library's order is the order in which states number the rules.
    usual = tuple(map(recorded, library.all_rules()))
    added = tuple(map(recorded, library.rules_of(library.CONTRIB))) if contrib else ()
    return RuleFile(
        (*usual, *generated.rules, *added),
        {**{rule.name: WRITTEN for rule in (*usual, *added)}, **generated.origins},
        generated.provenance,
        {**instances, **generated.instances},
    )


def _read(path: pathlib.Path) -> RuleFile:
    data = _json(path)
    entries = data.get("rules") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{path} is no file of rules: expected an object with a list 'rules'")
    provenance = data.get("made", {})
    wrong = files.misfit(data, {"made": dict}) or files.misfit(provenance, {"stages": dict})
    stages = () if wrong else provenance.get("stages", {})
    if wrong := wrong or files.misfit(stages, dict.fromkeys(stages, dict)):
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
    return RuleFile(tuple(rules), origins, provenance, instances)


def _json(path: pathlib.Path) -> Any:
    try:
        return files.read_json(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is no file of rules: expected JSON, found {error}") from error


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
    expected, actual = entry.get("sha256"), digest(rule)
    if expected not in (None, actual):
        raise UserError(
            f"{path}: rule {rule.name} was changed after it was verified: expected sha256 "
            f"{str(expected)[:12]}…, found {actual[:12]}…; without its sha256 it is verified anew"
        )
    return rule


def write(file: RuleFile, path: str | pathlib.Path) -> None:
    """Write a file of rules: either all of it, or nothing.

    In the place of the package's own file, the written rules go to the ledger instead, and only as
    far as they were verified.

    Raises:
      UserError: the file cannot be written.
    """
    path = pathlib.Path(path)
    rules: Sequence[Rule] = file.rules
    if path.resolve() == PATH.resolve():
        rules = [rule for rule in rules if file.origins[rule.name] != WRITTEN]
        ledger = {
            key: {"rule": rule.name, **rule.verification, "instances": count}
            for key, (rule, count) in file.verified.items()
            if file.origins[rule.name] == WRITTEN
        }
        lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(ledger[key])}" for key in ledger)
        files.replace(LEDGER, f"{{\n{lines}\n}}\n".encode())
        _own.cache_clear()
    entries = []
    for rule in rules:
        entry = rule.as_dict() | {"origin": file.origins[rule.name]}
        if rule.name in file.instances:
            entry |= {"instances": file.instances[rule.name], "sha256": digest(rule)}
        entries.append(entry)
    lines = ",\n".join(" " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    provenance = json.dumps(file.provenance, indent=1, ensure_ascii=False)
    text = f'{{"made": {provenance},\n"rules": [\n{lines}\n]}}\n'
    files.replace(path, text.encode())


def digest(rule: Rule) -> str:
    """Return a hash of everything that the verification of a rule depends on."""
    parts = [*map(str, rule.source), "=>", *map(str, rule.target), "if", *map(str, rule.conditions)]
    parts += ["constants", *sorted(rule.constants)]
    return hashlib.sha256("\n".join([str(_METHOD), *parts]).encode()).hexdigest()


def _verified(rule: Rule, place: str) -> Rule:
    """Return the rule with its verification: the package's, this machine's, or one made now."""
    key = digest(rule)
    if key in _own(True).verified:
        return rule.as_verified(_own(True).verified[key][0].verification)
    cache = VERIFIED_RULES.open()
    record = cache.get(key)
    if record is not None:
        return rule.as_verified(json.loads(record))
    from environments.tensor_graphs.rules.verification.verify import verify

    verdict = verify(rule, _NUM_INSTANCES)
    if not verdict.is_right:
        raise UserError(f"{place}: rule {rule.name} is refused: {verdict.how}")
    marked = verdict.mark(rule)
    cache.put(key, json.dumps(marked.verification).encode())
    return marked
