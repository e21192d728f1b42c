"""The rules that come with this package, and rules in files of the same form.

`rules.json` says how it was made and has the rules: generated ones (`synthesis.generate`), and some
written by hand (`families`). Each was verified as `verified_by` says, in so many `instances`, and
`sha256` says what it was then: a rule that was changed since is refused. A reader need not believe
any of that: rules that are not among those of the package, and that this machine has not verified
yet, are verified when their file is loaded. A file with a rule that is wrong is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.substitutions import RuleError, Substitution

PATH = pathlib.Path(__file__).with_name("rules.json")
GENERATED, WRITTEN, IMPORTED = "generated", "written by hand", "imported"

_OF_THE_FILE = frozenset({"origin", "instances", "sha256"})
_NUM_INSTANCES = 1000
_METHOD = 2
"""Changes when verification becomes stricter: what was verified before is verified again."""


@dataclasses.dataclass(frozen=True)
class RuleFile:
    """A file of rules.

    Attributes:
      rules: the rules.
      origins: GENERATED, WRITTEN or IMPORTED, by name of the rule.
      made: how the file was made.
      instances: in how many instances a rule was verified, by its name; not known of all.
    """

    rules: tuple[Substitution, ...]
    origins: Mapping[str, str]
    made: Mapping[str, Any]
    instances: Mapping[str, int] = dataclasses.field(default_factory=dict)


def load(path: str | pathlib.Path | None = None) -> tuple[Substitution, ...]:
    """The rules of a file, all of them verified; by default those that come with the package.

    Raises:
      UserError: there is no such file, it is none of rules, or it has a rule that is wrong.
    """
    if path is None:
        return _own().rules
    rules = read(path).rules
    for rule, problem in unverified(rules).items():
        if problem:
            raise UserError(f"{path}: rule {rule} is refused: {problem}")
    return rules


def read(path: str | pathlib.Path | None = None) -> RuleFile:
    """A file of rules as it is, nothing verified.

    Raises:
      UserError: there is no such file, it is none of rules, or a rule of it is not what it was when
        it was verified.
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
    rules: list[Substitution] = []
    origins: dict[str, str] = {}
    instances: dict[str, int] = {}
    for entry in entries:
        rule = _rule(entry, path)
        if rule.name in origins:
            raise UserError(f"{path}: two rules are called {rule.name}; rename one")
        rules.append(rule)
        origins[rule.name] = str(entry.get("origin", ""))
        if "instances" in entry:
            instances[rule.name] = int(entry["instances"])
    return RuleFile(tuple(rules), origins, data.get("made", {}), instances)


def _rule(entry: Mapping[str, Any], path: pathlib.Path) -> Substitution:
    fields = {name: value for name, value in entry.items() if name not in _OF_THE_FILE}
    try:
        rule = Substitution.from_dict(fields)
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
        entry = one.as_dict() | {"origin": file.origins.get(one.name, "")}
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


def digest(rule: Substitution) -> str:
    """Of all that makes a rule right or wrong."""
    parts = [*map(str, rule.source), "=>", *map(str, rule.target), "if", *map(str, rule.conditions)]
    return hashlib.sha256("\n".join([str(_METHOD), *parts]).encode()).hexdigest()


def unverified(rules: Sequence[Substitution]) -> dict[str, str]:
    """Verifies those rules that nobody has verified yet; remembers those that are right.

    Args:
      rules: any.

    Returns:
      What is wrong with them, empty where nothing is, by the names of those that were verified now.
    """
    known = _own_digests()
    rest = [rule for rule in rules if digest(rule) not in known]
    if not rest:
        return {}
    from environments.tensor_graphs.synthesis.verify import verify

    store = _directory()
    found: dict[str, str] = {}
    for rule in rest:
        mark = store / digest(rule)
        if mark.exists():
            continue
        verdict = verify(rule, _NUM_INSTANCES)
        found[rule.name] = "" if verdict.is_right else verdict.how
        if verdict.is_right:
            _remember(mark, verdict.how)
    return found


def without_duplicates(rules: Iterable[Substitution]) -> tuple[Substitution, ...]:
    """The first of those that are renamings of each other and are tried at the same places."""
    from environments.tensor_graphs.synthesis.prune import canonical

    found: dict[tuple[str, ...], Substitution] = {}
    for rule in rules:
        found.setdefault((canonical(rule), *sorted(map(str, rule.restrictions))), rule)
    return tuple(found.values())


@functools.lru_cache(maxsize=1)
def _own() -> RuleFile:
    return read(PATH)


@functools.lru_cache(maxsize=1)
def _own_digests() -> frozenset[str]:
    return frozenset(map(digest, _own().rules)) if PATH.exists() else frozenset()


def _directory() -> pathlib.Path:
    """Where this machine remembers which rules it has verified."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "tfrl" / "verified_rules"


def _remember(mark: pathlib.Path, how: str) -> None:
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(how + "\n", encoding="utf-8")
    except OSError:
        return  # Where nothing can be remembered, rules are verified each time.
