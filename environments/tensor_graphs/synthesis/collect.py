"""Makes `rules.json`: what was generated, and what was written by hand, all verified."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence

from environments.tensor_graphs.rules import GENERATED, WRITTEN, RuleFile, digest
from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis.generate import Generator
from environments.tensor_graphs.synthesis.prune import canonical
from environments.tensor_graphs.synthesis.verify import needs, verify
from environments.tensor_graphs.synthesis.vocabularies import VOCABULARIES, Vocabulary


def make_rules(
    written: Sequence[Substitution],
    seed: int = 0,
    max_size: int | None = None,
    num_instances: int = 300,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
    earlier: RuleFile | None = None,
    command: str = "",
    progress_fn: Callable[[str], None] = lambda text: None,
) -> RuleFile:
    """Verifies the rules that are given, and generates others.

    Args:
      written: rules that were written by hand; those that are wrong are left out, and told of.
      seed: of all that is random.
      max_size: the most operators in a source that is generated.
      num_instances: how many instances of each rule are looked at.
      vocabularies: of the generator.
      earlier: a file that was made before. What it has is not verified again, and its generated
        rules are taken instead of new ones.
      command: how to make the same file again.
      progress_fn: told what was done.
    """
    verified = {digest(one): one.verified_by for one in earlier.rules} if earlier else {}
    stages: dict[str, dict[str, int]] = {}
    rules = _verified(written, verified, num_instances, seed, stages, progress_fn)
    if earlier is None:
        generator = Generator(seed, max_size, rules, num_instances)
        generated = generator.run(vocabularies, progress_fn)
        stages |= {name: dict(counts) for name, counts in generator.counts.items()}
    else:
        generated = [one for one in earlier.rules if earlier.origins[one.name] == GENERATED]
        stages |= {name: one for name, one in earlier.made["stages"].items() if name != WRITTEN}
    # The same rule may be tried in different places under different names.
    unique: dict[tuple[str, frozenset[str]], Substitution] = {}
    for rule in (*rules, *generated):
        unique.setdefault((canonical(rule), frozenset(map(str, rule.restrictions))), rule)
    kept = tuple(unique.values())
    stages[WRITTEN]["rules"] = sum(one in rules for one in kept)
    origins = {one.name: WRITTEN if one in rules else GENERATED for one in kept}
    made = {
        "command": command,
        "seed": seed,
        "instances": num_instances,
        "rules": len(kept),
        "without renamings": len({canonical(one) for one in kept}),
        "stages": stages,
        "versions": _versions(),
    }
    return RuleFile(kept, origins, made)


def _verified(
    written: Sequence[Substitution],
    known: Mapping[str, str],
    num_instances: int,
    seed: int,
    stages: dict[str, dict[str, int]],
    progress_fn: Callable[[str], None],
) -> list[Substitution]:
    """The written rules that are right, without conditions that they do not need."""
    rules: list[Substitution] = []
    counts = {"given": len(written), "refused": 0, "conditions not needed": 0}
    for number, rule in enumerate(written, 1):
        if digest(rule) in known:
            rules.append(dataclasses.replace(rule, verified_by=known[digest(rule)]))
            continue
        verdict = verify(rule, num_instances, seed)
        if not verdict.is_right:
            counts["refused"] += 1
            progress_fn(f"{rule.name} is refused: {verdict.how}")
            continue
        narrow = without_needless(rule, num_instances, seed)
        counts["conditions not needed"] += len(rule.conditions) - len(narrow.conditions)
        how = verdict.how if narrow == rule else verify(narrow, num_instances, seed).how
        rules.append(dataclasses.replace(narrow, verified_by=how))
        if number % 25 == 0:
            progress_fn(f"{number} of {len(written)} written by hand")
    stages[WRITTEN] = counts
    progress_fn(f"{WRITTEN}: {counts}")
    return rules


def without_needless(rule: Substitution, num_instances: int, seed: int = 0) -> Substitution:
    """Without those conditions whose absence never makes it wrong.

    Often the types that an operator takes, or that a new output must have, say the same already.

    Args:
      rule: a rule that is right.
      num_instances: how many instances it must survive without a condition.
      seed: of all that is random.
    """
    for condition in rule.conditions:
        if needs(rule, condition, 2 * num_instances, seed) is not None:
            continue
        kept = tuple(one for one in rule.conditions if one != condition)
        wider = dataclasses.replace(rule, conditions=kept)
        if all(verify(wider, num_instances, seed + more).is_right for more in (1, 2)):
            rule = wider
    return rule


def _versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("numpy", "tfrl-systems"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
