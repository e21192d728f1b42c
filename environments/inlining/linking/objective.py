"""What an object costs: its bytes, or what they are worth in the linked image of its project.

A C++ inline function is compiled into every object that uses it, in a COMDAT group of which the
linker keeps one copy. So an object's own size counts such a function once for each object, and a
policy that saves copies saves nothing in the end. Counted as in the "image", each of the n objects
of a project that hold a group is charged 1/n of its bytes: the sum over the objects of a project is
then what the linker keeps. n is counted in plain -Oz objects, over all modules of the project; if
these are a sample of its sources, further holders are taken to be as frequent in the others.

For learning from single decisions, that is too strict: a copy that goes away in one object is
worth little, yet it goes away in all of them if the policy decides alike everywhere. "between"
charges 1/√n, and "object" counts objects as they are.

A byte of unwind tables and read-only data is charged like one of code. Who builds without tables
gives it a smaller weight.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from environments.errors import UserError
from environments.inlining.compilers.object_size import ObjectSize, read_function_bytes
from environments.inlining.corpus.modules import Module

# Number of objects in the project that hold a COMDAT group -> what a byte of it counts.
_WORTH: Mapping[str, Callable[[float], float]] = {
    "image": lambda num_holders: 1 / num_holders,
    "between": lambda num_holders: num_holders**-0.5,
    "object": lambda num_holders: 1.0,
}
COPIES = tuple(_WORTH)
_TABLE_WEIGHTS = {"image": 1.0, "object": 1.0, "code": 0.0}


@dataclasses.dataclass(frozen=True)
class Objective:
    """Counts the bytes of objects.

    Attributes:
      worth: by project, what a byte of a COMDAT group counts, by the group's key; 1 for others.
      table_weight: what a byte that is not code counts: of unwind tables and read-only data.
    """

    worth: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    table_weight: float = 1.0

    def of_project(self, project: str) -> Mapping[int, float]:
        """Return what a byte of each COMDAT group of a project counts, where that is not 1."""
        return self.worth.get(project, {})

    def cost(self, project: str, size: ObjectSize) -> float:
        """Return what an object costs, in bytes of code."""
        worth = self.of_project(project)
        whole = self._weighed(size.text_bytes, size.exec_bytes)
        if not worth:
            return whole
        return whole - math.fsum(
            (1 - worth.get(key, 1.0)) * self._weighed(num_bytes, exec_bytes)
            for key, num_bytes, exec_bytes in size.groups.tolist()
        )

    def function_bytes(self, project: str, data: bytes) -> dict[str, float]:
        """Return what each function of an object costs; see `read_function_bytes`."""
        return read_function_bytes(data, self.of_project(project), self.table_weight)

    def digest(self, project: str) -> str:
        """Return a hash that changes when an object of the project may cost something else."""
        worth = sorted(self.of_project(project).items())
        return hashlib.sha256(repr((worth, self.table_weight)).encode()).hexdigest()[:16]

    def _weighed(self, num_bytes: int, exec_bytes: int) -> float:
        return exec_bytes + self.table_weight * (num_bytes - exec_bytes)


OBJECT = Objective()
"""Counts objects as they are."""


class Counted(NamedTuple):
    """What of an object counts, as a setting names it; see `read_counted`.

    Attributes:
      copies: how copies of a function in several objects count, one of `COPIES`.
      table_weight: what a byte of unwind tables and read-only data counts beside one of code.
    """

    copies: str
    table_weight: float


def read_counted(name: str) -> Counted:
    """Read the setting `objective`: image, code, object, or a weight of tables from 0 to 1.

    Raises:
      UserError: it is none of them.
    """
    with contextlib.suppress(ValueError):
        weight = _TABLE_WEIGHTS[name] if name in _TABLE_WEIGHTS else float(name)
        if 0 <= weight <= 1:
            return Counted("object" if name == "object" else "image", weight)
    raise UserError(
        f"objective: expected {', '.join(_TABLE_WEIGHTS)}, or a number from 0 (code) to 1 (image), "
        f"found {name!r}; name one of them"
    )


def make_objective(
    counted: Counted,
    defaults: Iterable[tuple[Module, ObjectSize]],
    num_sources: Mapping[str, int] | None = None,
) -> Objective:
    """Make an objective.

    Args:
      counted: what of an object counts.
      defaults: all modules of the projects, each with the sizes of its plain -Oz object.
      num_sources: number of all sources of a project, where its modules are a sample of them.

    Raises:
      UserError: copies cannot count like that.
    """
    copies = counted.copies
    if copies not in _WORTH:
        raise UserError(
            f"copies: expected one of {', '.join(COPIES)}, found {copies!r}; name one of them"
        )
    holders: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    num_objects: collections.Counter[str] = collections.Counter()
    for module, size in defaults:
        num_objects[module.project] += 1
        holders[module.project].update(size.groups["key"].tolist())
    worth: dict[str, dict[int, float]] = {}
    for project, num_holders in holders.items():
        times = max(1.0, (num_sources or {}).get(project, 0) / num_objects[project])
        # One holder is there for sure; the others stand for those of the sources left out.
        values = ((key, _WORTH[copies](1 + (n - 1) * times)) for key, n in num_holders.items())
        worth[project] = {key: value for key, value in values if value != 1}
    by_project = {project: by_group for project, by_group in worth.items() if by_group}
    return Objective(by_project, counted.table_weight)
