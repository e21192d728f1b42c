"""The best known episode of each context, as a cloning agent remembers them.

This is line 5 of BC-Max's Algorithm 1: of all episodes that any policy played in a context, the
cheapest is imitated. The paper prints argmin beside "highest reward"; Algorithm 2 and the text say
argmax of the reward, which is the least cost.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts

from environments import files
from tfrl_systems.episodes import Experience

_ARRAYS_NAME = "lessons.npz"


class Steps(NamedTuple):
    """N steps to imitate.

    Attributes:
      observation: what the policy sees, arrays [N, …].
      action: the action that was taken, [N, …].
      info: further labels, arrays [N, …]; () if there are none.
    """

    observation: Any
    action: Any
    info: Any


@dataclasses.dataclass
class Column:
    """An array [N, A, …] without the rows that repeat at the end of each item.

    Observations are padded to fixed sizes. Without padding they need a fraction of the memory.

    Attributes:
      shape: the shape of an item.
      rows: the rows of all items, one after the other.
      counts: the number of rows of each item, [N].
    """

    shape: tuple[int, ...]
    rows: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> Column:
        """Make the column of an array; arrays [N] stay as they are."""
        shape = array.shape[1:]
        if not shape:
            array = array[:, np.newaxis]
        size = array.shape[1]
        flat = array.reshape(*array.shape[:2], -1)
        differs = (flat != flat[:, -1:]).any(axis=2)
        # The first of the rows that repeat stays.
        counts = np.where(differs.any(axis=1), size - differs[:, ::-1].argmax(axis=1) + 1, 1)
        return cls(shape, array[np.arange(size) < counts[:, np.newaxis]], counts)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return some items with their padding, [len(places), A, …]."""
        starts = np.cumsum(self.counts) - self.counts
        number = np.arange(self.shape[0] if self.shape else 1)
        within = np.minimum(number, self.counts[places, np.newaxis] - 1)
        items = self.rows[starts[places, np.newaxis] + within]
        return items if self.shape else items[:, 0]

    def select(self, is_kept: np.ndarray) -> Column:
        """Return a column of some of the items; `is_kept` is bool [N]."""
        rows = self.rows[np.repeat(is_kept, self.counts)]
        return dataclasses.replace(self, rows=rows, counts=self.counts[is_kept])

    def followed_by(self, more: Column) -> Column:
        """Return a column of these items and then those of another."""
        rows = np.concatenate([self.rows, more.rows])
        counts = np.concatenate([self.counts, more.counts])
        return dataclasses.replace(self, rows=rows, counts=counts)


class Records(NamedTuple):
    """The best costs so far in L contexts.

    Attributes:
      context: names [L], or points float64 [L, n].
      num_steps: number of steps of the cheapest episode, int64 [L].
      cost: its cost, float64 [L].
      first_cost: the least cost in the iteration that met the context first, float64 [L].
      learned_cost: the cost of the last learned policy that met the context, float64 [L]; NaN if
        none has.
      iteration: the last iteration that met the context, int64 [L].
    """

    context: np.ndarray
    num_steps: np.ndarray
    cost: np.ndarray
    first_cost: np.ndarray
    learned_cost: np.ndarray
    iteration: np.ndarray


class Lessons:
    """The cheapest episode of each context that was met, and steps drawn from all of them.

    Args:
      max_steps: the most steps that are remembered; the contexts that were met first are forgotten.

    Attributes:
      records: costs of each context; None before the first.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._steps: Any = None
        self.records: Records | None = None

    @property
    def num_steps(self) -> int:
        """Return the number of steps of all episodes together."""
        return 0 if self.records is None else int(self.records.num_steps.sum())

    def add(self, experience: Experience, iteration: int) -> None:
        """Remember episodes; of several in one context, only the cheapest.

        Args:
          experience: the episodes [B, T]. Their info holds `cost`, smaller is better, and may hold
            `learned_cost`, that of the last learned policy in the context; NaN if unknown.
          iteration: number of the iteration that collected them.
        """
        new = _records_of(experience, iteration)
        places = {key: place for place, key in enumerate(_keys(self.records))}
        best: dict[Hashable, int] = {}
        for row, key in enumerate(_keys(new)):
            if self.records is not None and (place := places.get(key)) is not None:
                self.records.iteration[place] = iteration
                if not np.isnan(new.learned_cost[row]):
                    self.records.learned_cost[place] = new.learned_cost[row]
                new.learned_cost[row] = self.records.learned_cost[place]
                new.first_cost[row] = self.records.first_cost[place]
                if self.records.cost[place] <= new.cost[row]:
                    continue
            if key not in best or new.cost[row] < new.cost[best[key]]:
                best[key] = row
        self._keep(np.array([key not in best for key in places], np.bool_))
        if rows := list(best.values()):
            self._append(
                _steps_of(experience, rows), tree.map_structure(lambda array: array[rows], new)
            )
        assert self.records is not None
        after = np.cumsum(self.records.num_steps[::-1])[::-1]
        # The newest context stays, however long its episode is.
        self._keep((after <= self._max_steps) | (np.arange(len(after)) == len(after) - 1))

    def draw(self, count: int, weights: np.ndarray, generator: np.random.Generator) -> Steps:
        """Draw steps with replacement; `weights`, float64 [L], is for each step of a context."""
        assert self.records is not None
        sums = np.cumsum(np.repeat(weights, self.records.num_steps))
        places = np.searchsorted(sums, generator.random(count) * sums[-1], side="right")
        # A draw may be rounded up to the whole sum, beyond the last step.
        places = np.minimum(places, len(sums) - 1)
        return tree.map_structure(lambda column: column.take(places), self._steps)

    def save(self, directory: pathlib.Path) -> None:
        """Write everything into a directory."""
        columns = tree.flatten(self._steps) if self.records else []
        named = {f"rows{number}": column.rows for number, column in enumerate(columns)}
        named |= {f"counts{number}": column.counts for number, column in enumerate(columns)}
        records = self.records._asdict() if self.records else {}
        np.savez(directory / _ARRAYS_NAME, **records, **named)

    def restore(self, directory: pathlib.Path, like: Steps) -> None:
        """Read what `save` wrote; `like` is one step of the same structure."""
        arrays = files.read_arrays(directory / _ARRAYS_NAME)
        if not arrays:
            return
        # What an older version saved has no first costs.
        arrays.setdefault("first_cost", arrays["cost"])
        self.records = Records(*(arrays[name] for name in Records._fields))
        columns = [Column.of(leaf) for leaf in tree.flatten(like)]
        for number, column in enumerate(columns):
            column.rows, column.counts = arrays[f"rows{number}"], arrays[f"counts{number}"]
        self._steps = tree.unflatten_as(like, columns)

    def _keep(self, is_kept: np.ndarray) -> None:
        """Forget the other contexts; `is_kept` is bool [L]."""
        if self.records is None or is_kept.all():
            return
        of_step = np.repeat(is_kept, self.records.num_steps)
        self._steps = tree.map_structure(lambda column: column.select(of_step), self._steps)
        self.records = tree.map_structure(lambda array: array[is_kept], self.records)

    def _append(self, steps: Steps, records: Records) -> None:
        if self.records is None:
            self._steps, self.records = steps, records
        else:
            self._steps = tree.map_structure(
                lambda column, more: column.followed_by(more), self._steps, steps
            )
            self.records = tree.map_structure(
                lambda array, more: np.concatenate([array, more]), self.records, records
            )


def _records_of(experience: Experience, iteration: int) -> Records:
    cost = np.asarray(experience.info["cost"], np.float64)
    unknown = np.full(len(cost), np.nan)
    return Records(
        np.asarray(experience.contexts),
        np.count_nonzero(experience.trajectory.step_type != ts.StepType.LAST, axis=1),
        cost,
        cost.copy(),
        np.array(experience.info.get("learned_cost", unknown), np.float64),
        np.full(len(cost), iteration),
    )


def _steps_of(experience: Experience, rows: list[int]) -> Steps:
    """Return the steps of some episodes in which an action was taken, as columns."""
    trajectory = experience.trajectory
    is_taken = np.asarray(trajectory.step_type)[rows] != ts.StepType.LAST
    steps = Steps(trajectory.observation, trajectory.action, trajectory.policy_info)
    return tree.map_structure(lambda array: Column.of(np.asarray(array)[rows][is_taken]), steps)


def _keys(records: Records | None) -> list[Hashable]:
    """Return something hashable for each context: its name, or the bytes of its point."""
    if records is None:
        return []
    context = records.context
    return context.tolist() if context.ndim == 1 else [row.tobytes() for row in context]
