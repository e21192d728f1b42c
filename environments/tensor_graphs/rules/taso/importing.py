"""Imports the rules of TASO's rule file that are right.

TASO's rules say little about shapes: some are right only for concatenations of equal parts, or for
convolutions without groups. Such rules are refused, with an instance in which they are wrong.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from environments.tensor_graphs.rules.generation.collect import without_needless
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.taso.file import TasoRule, read_taso_file
from environments.tensor_graphs.rules.taso.translation import (
    Translation,
    TranslationError,
    translate,
)
from environments.tensor_graphs.rules.verification.verify import verify


@dataclasses.dataclass(frozen=True)
class Import:
    """Which rules of a file were accepted.

    Attributes:
      accepted: rules, verified.
      rejected: reasons, by the names of rules ("taso_17": the eighteenth of the file).
    """

    accepted: tuple[Rule, ...]
    rejected: dict[str, str]


def import_taso(
    path: str | pathlib.Path,
    num_instances: int = 500,
    seed: int = 0,
    progress_fn: Callable[[int], None] | None = None,
) -> Import:
    """Reads, translates and verifies TASO's rules.

    Args:
      path: the file.
      num_instances: how many instances of each rule are looked at.
      seed: of all that is random.
      progress_fn: told how many rules there are, then 0 after each.

    Raises:
      UserError: it is no such file.
    """
    accepted: dict[str, Rule] = {}
    rejected: dict[str, str] = {}
    given = read_taso_file(path)
    if progress_fn is not None:
        progress_fn(len(given))
    for number, one in enumerate(given):
        name = f"taso_{number}"
        found = _take(one, name, num_instances, seed)
        if isinstance(found, str):
            rejected[name] = found
        else:
            twin = accepted.setdefault(canonical(found), found)
            if twin is not found:
                rejected[name] = f"it says what {twin.name} says"
        if progress_fn is not None:
            progress_fn(0)
    return Import(tuple(accepted.values()), rejected)


def _take(given: TasoRule, name: str, num_instances: int, seed: int) -> Rule | str:
    """The rule, or why it is not taken."""
    try:
        translation = translate(given, name)
    except TranslationError as error:
        return str(error)
    rule = translation.rule
    if not verify(rule, num_instances, seed).is_right:
        rule = _strictest(translation)
    verdict = verify(rule, num_instances, seed + 1)
    if not verdict.is_right:
        return verdict.how
    rule = without_needless(rule, num_instances, seed)
    return verify(rule, num_instances, seed).mark(rule)


def _strictest(translation: Translation) -> Rule:
    conditions = (*translation.rule.conditions, *translation.implicit)
    return dataclasses.replace(translation.rule, conditions=conditions)
