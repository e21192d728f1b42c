"""The best known episode of each context, as a cloning agent remembers them.

This is line 5 of BC-Max's Algorithm 1: of all episodes that any policy played in a context, the
cheapest one is imitated. The paper prints argmin beside "highest reward"; Algorithm 2 and the text
say argmax of the reward, which is the least cost.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts

from environments import files
from environments.errors import UserError
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


class Column:
    """An array [N, A, …] without the rows that repeat at the end of each item.

    Observations are padded to fixed sizes. Without padding they need a fraction of the memory.

    Args:
      array: the array; arrays [N] are kept as they are.
    """

    def __init__(self, array: np.ndarray) -> None:
        array = np.asarray(array)
        self._shape = array.shape[1:]
        if not self._shape:
            array = array[:, np.newaxis]
        size = array.shape[1]
        flat = array.reshape(*array.shape[:2], -1)
        differs = (flat != flat[:, -1:]).any(axis=2)
        # One row of those that repeat is kept.
        self.counts = np.where(differs.any(axis=1), size - differs[:, ::-1].argmax(axis=1) + 1, 1)
        self.rows = array[np.arange(size) < self.counts[:, np.newaxis]]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return some items with their padding, [len(places), A, …]."""
        starts = np.cumsum(self.counts) - self.counts
        number = np.arange(self._shape[0] if self._shape else 1)
        within = np.minimum(number, self.counts[places, np.newaxis] - 1)
        found = self.rows[starts[places, np.newaxis] + within]
        return found if self._shape else found[:, 0]

    def kept(self, is_kept: np.ndarray) -> Column:
        """Return a column of some of the items; `is_kept` is bool [N]."""
        return self._made(self.rows[np.repeat(is_kept, self.counts)], self.counts[is_kept])

    def followed_by(self, more: Column) -> Column:
        """Return a column of these items and then those of another."""
        rows = np.concatenate([self.rows, more.rows])
        return self._made(rows, np.concatenate([self.counts, more.counts]))

    def _made(self, rows: np.ndarray, counts: np.ndarray) -> Column:
        made = object.__new__(Column)
        made._shape, made.rows, made.counts = self._shape, rows, counts
        return made


class Known(NamedTuple):
    """What is known of L contexts.

    Attributes:
      context: names [L], or points float64 [L, n].
      num_steps: number of steps of the cheapest episode, int64 [L].
      cost: its cost, float64 [L].
      learned_cost: what the last learned policy that met the context came to, float64 [L]; NaN if
        none has.
      iteration: the iteration in which the context was met last, int64 [L].
    """

    context: np.ndarray
    num_steps: np.ndarray
    cost: np.ndarray
    learned_cost: np.ndarray
    iteration: np.ndarray


class Lessons:
    """The cheapest episode of each context that was met, and steps drawn from all of them.

    Args:
      max_steps: the most steps that are remembered; the contexts that were met first are forgotten.

    Attributes:
      known: what is known of each context; None before the first.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._steps: Any = None
        self.known: Known | None = None

    @property
    def num_steps(self) -> int:
        """Return the number of steps of all episodes together."""
        return 0 if self.known is None else int(self.known.num_steps.sum())

    def add(self, experience: Experience, iteration: int) -> None:
        """Remember episodes; of several in one context, only the cheapest.

        Args:
          experience: the episodes [B, T]. Their info holds `cost`, smaller is better, and may hold
            `learned_cost`, what the last learned policy came to in the context; NaN if unknown.
          iteration: number of the iteration that collected them.
        """
        new = _known_of(experience, iteration)
        places = {key: place for place, key in enumerate(_keys(self.known))}
        best: dict[Hashable, int] = {}
        for row, key in enumerate(_keys(new)):
            if self.known is not None and (place := places.get(key)) is not None:
                self.known.iteration[place] = iteration
                if not np.isnan(new.learned_cost[row]):
                    self.known.learned_cost[place] = new.learned_cost[row]
                new.learned_cost[row] = self.known.learned_cost[place]
                if self.known.cost[place] <= new.cost[row]:
                    continue
            if key not in best or new.cost[row] < new.cost[best[key]]:
                best[key] = row
        self._keep(np.array([key not in best for key in places], np.bool_))
        if rows := list(best.values()):
            self._append(_steps_of(experience, rows), _map(lambda array: array[rows], new))
        assert self.known is not None
        after = np.cumsum(self.known.num_steps[::-1])[::-1]
        # The newest context stays, however long its episode is.
        self._keep((after <= self._max_steps) | (np.arange(len(after)) == len(after) - 1))

    def draw(self, count: int, weights: np.ndarray, generator: np.random.Generator) -> Steps:
        """Draw steps with replacement.

        Args:
          count: number of steps.
          weights: weight of each step of a context, float64 [L].
          generator: decides the draw.
        """
        assert self.known is not None
        sums = np.cumsum(np.repeat(weights, self.known.num_steps))
        places = np.searchsorted(sums, generator.random(count) * sums[-1], side="right")
        places = np.minimum(places, len(sums) - 1)
        return _map(lambda column: column.take(places), self._steps)

    def save(self, directory: pathlib.Path) -> None:
        """Write everything into a directory."""
        columns = tree.flatten(self._steps) if self.known else []
        named = {f"rows{number}": column.rows for number, column in enumerate(columns)}
        named |= {f"counts{number}": column.counts for number, column in enumerate(columns)}
        known = self.known._asdict() if self.known else {}
        np.savez(directory / _ARRAYS_NAME, **known, **named)

    def restore(self, directory: pathlib.Path, like: Steps) -> None:
        """Read what `save` wrote.

        Args:
          directory: the directory.
          like: one step of the same structure.

        Raises:
          UserError: the file is missing or damaged.
        """
        path = directory / _ARRAYS_NAME
        columns = [Column(leaf) for leaf in tree.flatten(like)]
        try:
            found = files.read_arrays(path)
            if not found:
                return
            known = Known(*(found[name] for name in Known._fields))
            for number, column in enumerate(columns):
                column.rows, column.counts = found[f"rows{number}"], found[f"counts{number}"]
        except (OSError, KeyError, ValueError) as error:
            raise UserError(
                f"{path}: expected the episodes of this run, found: {error}; remove the run's "
                "directory and train again"
            ) from error
        self.known, self._steps = known, tree.unflatten_as(like, columns)

    def _keep(self, is_kept: np.ndarray) -> None:
        """Forget the other contexts; `is_kept` is bool [L]."""
        if self.known is None or is_kept.all():
            return
        of_step = np.repeat(is_kept, self.known.num_steps)
        self._steps = _map(lambda column: column.kept(of_step), self._steps)
        self.known = _map(lambda array: array[is_kept], self.known)

    def _append(self, steps: Steps, known: Known) -> None:
        if self.known is None:
            self._steps, self.known = steps, known
        else:
            self._steps = _map(lambda one, more: one.followed_by(more), self._steps, steps)
            self.known = _map(lambda one, more: np.concatenate([one, more]), self.known, known)


def _known_of(experience: Experience, iteration: int) -> Known:
    cost = np.asarray(experience.info["cost"], np.float64)
    unknown = np.full(len(cost), np.nan)
    return Known(
        np.asarray(experience.contexts),
        np.count_nonzero(experience.trajectory.step_type != ts.StepType.LAST, axis=1),
        cost,
        np.array(experience.info.get("learned_cost", unknown), np.float64),
        np.full(len(cost), iteration),
    )


def _steps_of(experience: Experience, rows: list[int]) -> Steps:
    """Return the steps of some episodes in which an action was taken, as columns."""
    steps = experience.trajectory
    is_taken = np.asarray(steps.step_type)[rows] != ts.StepType.LAST
    kept = Steps(steps.observation, steps.action, steps.policy_info)
    return _map(lambda array: Column(np.asarray(array)[rows][is_taken]), kept)


def _keys(known: Known | None) -> list[Hashable]:
    """Return something hashable for each context: its name, or the bytes of its point."""
    if known is None:
        return []
    context = known.context
    return context.tolist() if context.ndim == 1 else [row.tobytes() for row in context]


def _map(function: Callable[..., Any], *nests: Any) -> Any:
    return tree.map_structure(function, *nests)
