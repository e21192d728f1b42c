"""What an object costs: its bytes, or what they are worth in the linked image of its project.

A C++ inline function is compiled into every object that uses it, in a COMDAT group of which the
linker keeps one copy. So an object's own size counts such a function once for each object, and a
policy that saves copies saves nothing in the end. The objective "image" charges each of the n
objects of a project that hold a group 1/n of its bytes: the sum over the objects of a project is
then what the linker keeps. n is counted in plain -Oz objects, over all modules of the project.

For learning from single decisions, "image" is too strict: a copy that goes away in one object is
worth little, yet it goes away in all of them if the policy decides alike everywhere. The objective
"between" charges 1/√n.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping

from environments.errors import UserError
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module

# Number of objects in the project that hold a COMDAT group -> what a byte of it counts.
_WORTH: Mapping[str, Callable[[int], float]] = {
    "image": lambda num_holders: 1 / num_holders,
    "between": lambda num_holders: num_holders**-0.5,
    "object": lambda num_holders: 1.0,
}
OBJECTIVES = tuple(_WORTH)


@dataclasses.dataclass(frozen=True)
class Objective:
    """Counts the bytes of objects.

    Attributes:
      name: for messages; the default counts the text column of the object itself.
      worth: by project, what a byte of a COMDAT group counts, by the group's key; 1 for others.
    """

    name: str = "object"
    worth: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)

    def of_project(self, project: str) -> Mapping[int, float]:
        """Return what a byte of each COMDAT group of a project counts, where that is not 1."""
        return self.worth.get(project, {})

    def cost(self, project: str, size: ObjectSize) -> float:
        """Return what an object costs, in bytes."""
        worth = self.of_project(project)
        if not worth:
            return float(size.text_bytes)
        spared = ((1 - worth.get(key, 1.0)) * num_bytes for key, num_bytes in size.groups.tolist())
        return size.text_bytes - math.fsum(spared)

    def digest(self, project: str) -> str:
        """Return a hash that changes when an object of the project may cost something else."""
        worth = sorted(self.of_project(project).items())
        return hashlib.sha256(repr(worth).encode()).hexdigest()[:16]


OBJECT = Objective()
"""Counts objects as they are."""


def make_objective(name: str, defaults: Iterable[tuple[Module, ObjectSize]]) -> Objective:
    """Make an objective.

    Args:
      name: one of `OBJECTIVES`.
      defaults: all modules of the projects, each with the sizes of its plain -Oz object.

    Raises:
      UserError: there is no objective of that name.
    """
    if name not in _WORTH:
        raise UserError(
            f"objective: expected one of {', '.join(OBJECTIVES)}, found {name!r}; name one of them"
        )
    worth_fn = _WORTH[name]
    holders: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for module, size in defaults:
        holders[module.project].update(size.groups["key"].tolist())
    worth = {
        project: {key: value for key, n in counted.items() if (value := worth_fn(n)) != 1}
        for project, counted in holders.items()
    }
    return Objective(name, {project: by_group for project, by_group in worth.items() if by_group})
