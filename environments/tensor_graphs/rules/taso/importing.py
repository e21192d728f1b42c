"""Import those rules of TASO's rule file that are right.

TASO's rules say little about shapes: some are right only for concatenations of equal parts, or for
convolutions without groups. Such rules are refused, and the reason names an instance in which they
are wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from environments.tensor_graphs.rules.generation.generalise import without_needless
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.taso.translation import TranslationError, translate
from environments.tensor_graphs.rules.verification.verify import verify


@dataclasses.dataclass(frozen=True)
class Import:
    """The rules of a file that were accepted, and those that were not.

    Attributes:
      accepted: the accepted rules, all verified.
      rejected: reasons by name of the rejected rule ("taso_17" is the eighteenth rule of the file).
    """

    accepted: tuple[Rule, ...]
    rejected: dict[str, str]


def import_taso(
    rules: Sequence[Any],
    num_instances: int = 500,
    seed: int = 0,
    progress_fn: Callable[[], None] = lambda: None,
) -> Import:
    """Translate and verify TASO's rules; `progress_fn` is called after each of them."""
    accepted: dict[str, Rule] = {}
    rejected: dict[str, str] = {}
    for number, taso_rule in enumerate(rules):
        name = f"taso_{number}"
        outcome = _take(taso_rule, name, num_instances, seed)
        if isinstance(outcome, str):
            rejected[name] = outcome
        else:
            twin = accepted.setdefault(canonical(outcome), outcome)
            if twin is not outcome:
                rejected[name] = f"it says what {twin.name} says"
        progress_fn()
    return Import(tuple(accepted.values()), rejected)


def _take(taso_rule: Any, name: str, num_instances: int, seed: int) -> Rule | str:
    """Return the verified rule, or the reason why it is rejected."""
    try:
        rule, implicit = translate(taso_rule, name)
    except TranslationError as error:
        return str(error)
    if not verify(rule, num_instances, seed).is_right:
        rule = dataclasses.replace(rule, conditions=(*rule.conditions, *implicit))
    verdict = verify(rule, num_instances, seed + 1)
    if not verdict.is_right:
        return verdict.how
    rule = without_needless(rule, num_instances, seed)
    return verify(rule, num_instances, seed).mark(rule)
