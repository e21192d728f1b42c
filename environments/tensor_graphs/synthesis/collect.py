"""Makes `rules.json`: what was generated, and what was written by hand, all verified."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from collections.abc import Callable, Sequence

from environments.tensor_graphs.rules import GENERATED, WRITTEN, RuleFile
from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis.generate import Generator
from environments.tensor_graphs.synthesis.prune import canonical
from environments.tensor_graphs.synthesis.verify import needs, verify
from environments.tensor_graphs.synthesis.vocabularies import VOCABULARIES, Vocabulary


def make_rules(
    written: Sequence[Substitution],
    seed: int = 0,
    max_size: int | None = None,
    num_instances: int = 1000,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
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
      command: how to make the same file again.
      progress_fn: told what was done.
    """
    rules: list[Substitution] = []
    stages: dict[str, dict[str, int]] = {"written by hand": {"given": len(written)}}
    refused, dropped = [], 0
    for rule in written:
        verdict = verify(rule, num_instances, seed)
        if not verdict.is_right:
            refused.append(rule.name)
            progress_fn(f"{rule.name} is refused: {verdict.how}")
            continue
        narrow = without_needless(rule, num_instances, seed)
        dropped += len(rule.conditions) - len(narrow.conditions)
        how = verdict.how if narrow == rule else verify(narrow, num_instances, seed).how
        rules.append(dataclasses.replace(narrow, verified_by=how))
    stages["written by hand"] |= {"refused": len(refused), "conditions not needed": dropped}
    progress_fn(f"written by hand: {stages['written by hand']}")
    generator = Generator(seed, max_size, rules, num_instances)
    generator.run(vocabularies, progress_fn)
    unique: dict[str, Substitution] = {}
    for rule in (*rules, *generator.rules):
        unique.setdefault(canonical(rule), rule)
    kept = tuple(unique.values())
    stages["written by hand"]["rules"] = sum(one in rules for one in kept)
    stages |= {name: dict(counts) for name, counts in generator.counts.items()}
    origins = {one.name: WRITTEN if one in rules else GENERATED for one in kept}
    made = {
        "command": command,
        "seed": seed,
        "instances": num_instances,
        "stages": stages,
        "versions": _versions(),
    }
    return RuleFile(kept, origins, made)


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
