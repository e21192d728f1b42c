"""Make files of rules, such as the package's: generated and written rules, all verified."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import itertools
import sys
from collections.abc import Callable, Sequence

from environments.tensor_graphs.rules.files import GENERATED, WRITTEN, RuleFile, digest
from environments.tensor_graphs.rules.generation.generalise import without_needless
from environments.tensor_graphs.rules.generation.generate import Generator
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.generation.vocabularies import VOCABULARIES, Vocabulary
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification.verify import verify, verify_all

_FEW = 200


@dataclasses.dataclass(frozen=True)
class Thoroughness:
    """How thoroughly rules are verified before they are kept."""

    num_instances: int = 1000
    seeds: tuple[int, ...] = (1, 2, 3)
    num_jobs: int = 1


def make_rules(
    written: Sequence[Rule],
    seed: int = 0,
    max_size: int | None = None,
    thoroughness: Thoroughness | None = None,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
    earlier: RuleFile | None = None,
    command: str = "",
    progress_fn: Callable[[str], None] = lambda text: None,
) -> RuleFile:
    """Verify written rules, generate others, and return all that are right.

    What the file `earlier` verified is not verified again, its generated rules are taken instead of
    new ones, and its written rules need the conditions that they have there. `command`, which makes
    the same file again, is recorded in it. `max_size` is that of the vocabulary by default.
    """
    thoroughness = thoroughness or Thoroughness()
    few = min(_FEW, thoroughness.num_instances)
    stages: dict[str, dict[str, int]] = {}
    rules = _considered(written, earlier, few, seed, stages, progress_fn)
    if earlier is None:
        generator = Generator(seed, max_size, rules, few)
        generated = generator.run(vocabularies, progress_fn)
        stages |= {name: dict(counts) for name, counts in generator.counts.items()}
    else:
        generated = [rule for rule in earlier.rules if earlier.origins[rule.name] == GENERATED]
        before = earlier.provenance.get("stages", {})
        stages |= {name: counts for name, counts in before.items() if name != WRITTEN}
    # The same rule may be tried in different places under different names.
    unique: dict[tuple[str, frozenset[str]], Rule] = {}
    for rule in (*rules, *generated):
        unique.setdefault((canonical(rule), frozenset(map(str, rule.restrictions))), rule)
    origins = {rule.name: WRITTEN if rule in rules else GENERATED for rule in unique.values()}
    verified = _verified(tuple(unique.values()), earlier, thoroughness, progress_fn)
    right = tuple(rule for rule, _ in verified)
    stages[WRITTEN]["rules"] = sum(origins[rule.name] == WRITTEN for rule in right)
    record = {
        "command": command,
        "seed": seed,
        "instances": thoroughness.num_instances,
        "seeds": list(thoroughness.seeds),
        "rules": len(right),
        "without renamings": len({canonical(rule) for rule in right}),
        "fell when verified": len(unique) - len(right),
        "stages": stages,
        "versions": _versions(),
    }
    instances = {rule.name: count for rule, count in verified}
    return RuleFile(right, {rule.name: origins[rule.name] for rule in right}, record, instances)


def _verified(
    rules: Sequence[Rule],
    earlier: RuleFile | None,
    thoroughness: Thoroughness,
    progress_fn: Callable[[str], None],
) -> list[tuple[Rule, int]]:
    """Return the rules that are right, each with the number of instances it was verified in."""
    needed = thoroughness.num_instances * len(thoroughness.seeds)
    records = {} if earlier is None else earlier.verified
    records = {key: record for key, record in records.items() if record[1] >= needed}
    open_ = [rule for rule in rules if digest(rule) not in records]
    count = itertools.count(1)

    def on_rule() -> None:
        number = next(count)
        if number % 25 == 0:
            progress_fn(f"verified {number} of {len(open_)}")

    verdicts = verify_all(
        open_, thoroughness.num_instances, thoroughness.seeds, thoroughness.num_jobs, on_rule
    )
    verified: list[tuple[Rule, int]] = []
    for rule in rules:
        verdict = verdicts.get(rule.name)
        if verdict is None:
            before, num_instances = records[digest(rule)]
            verified.append((rule.as_verified(before.verification), num_instances))
        elif verdict.is_right:
            verified.append((verdict.mark(rule), verdict.num_instances))
        else:
            progress_fn(f"{rule.name} falls: {verdict.how}")
    return verified


def _considered(
    written: Sequence[Rule],
    earlier: RuleFile | None,
    num_instances: int,
    seed: int,
    stages: dict[str, dict[str, int]],
    progress_fn: Callable[[str], None],
) -> list[Rule]:
    """Return the written rules that are right in a few instances, without needless conditions."""
    rules: list[Rule] = []
    counts = {"given": len(written), "refused": 0, "conditions not needed": 0}
    by_name = {} if earlier is None else {rule.name: rule for rule in earlier.rules}
    for number, rule in enumerate(written, 1):
        before = by_name.get(rule.name)
        if before is not None and _is_less_conditional(before, rule):
            rules.append(dataclasses.replace(rule, conditions=before.conditions))
            counts["conditions not needed"] += len(rule.conditions) - len(before.conditions)
            continue
        verdict = verify(rule, num_instances, seed)
        if not verdict.is_right:
            counts["refused"] += 1
            progress_fn(f"{rule.name} is refused: {verdict.how}")
            continue
        rules.append(without_needless(rule, num_instances, seed))
        counts["conditions not needed"] += len(rule.conditions) - len(rules[-1].conditions)
        if number % 25 == 0:
            progress_fn(f"{number} of {len(written)} written")
    stages[WRITTEN] = counts
    progress_fn(f"{WRITTEN}: {counts}")
    return rules


def _is_less_conditional(rule: Rule, original: Rule) -> bool:
    """Return whether a rule is another one, perhaps without some of its conditions."""
    return (
        (rule.source, rule.target, rule.restrictions)
        == (original.source, original.target, original.restrictions)
    ) and set(rule.conditions) <= set(original.conditions)


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("numpy", "tfrl-systems"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
