"""Trials in a CSV file, which spreadsheets read: x0, x1, …, c0, …, value.

A trial is a row, in the function's own units. The header names the columns, in any order; further
columns are left out. The value is to be minimised. It is empty or "nan" where the trial failed.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import pathlib
import re
from typing import Any

import numpy as np

from environments import files
from environments.errors import UserError
from environments.learn_to_optimize.loading import read_bounds, to_domain
from tfrl_systems.policies.trials import Trials

_COLUMN = re.compile(r"([xc])(\d+)")
VALUE = "value"


@dataclasses.dataclass(frozen=True)
class LoggedTrials:
    """The rows of a file, and its digest.

    Attributes:
      points: (x, c) float64 [N, n], in the function's own units.
      values: float64 [N]; NaN where a trial failed.
      num_free: k.
    """

    points: np.ndarray
    values: np.ndarray
    num_free: int
    sha256: str

    def sides(self, name: str, bounds: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return low and high of the domain [n]: the bounds, or without them what rows span.

        Raises:
          UserError: a column has one value only, or `bounds` are none.
        """
        num_columns = self.points.shape[1]
        if bounds is not None:
            return read_bounds(name, num_columns, bounds)
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        if not (low < high).all():
            raise UserError(
                f"{name}: expected columns that vary, found one with the value "
                f"{low[np.argmin(low < high)]:g} alone; give --bounds"
            )
        return low, high

    def scaled(self, name: str, low: np.ndarray, high: np.ndarray) -> Trials:
        """Return the trials in the box.

        Raises:
          UserError: a row is outside of low and high.
        """
        points = 2 * (self.points - low) / (high - low) - 1
        outside = np.flatnonzero((np.abs(points) > 1 + 1e-9).any(axis=1))
        if len(outside):
            raise UserError(
                f"{name}: expected points within the bounds, found row {outside[0] + 2} outside; "
                "correct the row, or the bounds"
            )
        return Trials(np.clip(points, -1, 1), self.values)


def read(path: pathlib.Path) -> LoggedTrials:
    """Read a file of trials.

    Raises:
      UserError: there is none, or it is damaged; the message names the row.
    """
    try:
        data = files.read_bytes(path)
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: expected a CSV file of trials, found: {error}") from error
    if not rows:
        raise UserError(f"{path}: expected a header x0, x1, …, c0, …, {VALUE}; found nothing")
    columns, num_free = _columns(path, rows[0])
    numbers = [
        [_number(path, place, row, column) for column in columns]
        for place, row in enumerate(rows[1:], start=2)
        if row
    ]
    table = np.array(numbers, np.float64).reshape(-1, len(columns))
    points = table[:, :-1]
    if not np.isfinite(points).all():
        place = int(np.argmin(np.isfinite(points).all(axis=1))) + 2
        raise UserError(f"{path}: expected numbers for x and c, found none in row {place}")
    if np.count_nonzero(np.isfinite(table[:, -1])) < 2:
        raise UserError(f"{path}: expected two trials with a value, found {len(table)} trials")
    values = np.where(np.isfinite(table[:, -1]), table[:, -1], np.nan)
    return LoggedTrials(points, values, num_free, files.sha256(path))


def _columns(path: pathlib.Path, header: list[str]) -> tuple[list[int], int]:
    """Return the places of x0, …, c0, …, value in a header, and the number of c."""
    names = [name.strip() for name in header]
    numbered: dict[str, list[int]] = {"x": [], "c": []}
    for name in names:
        if match := _COLUMN.fullmatch(name):
            numbered[match[1]].append(int(match[2]))
    is_whole = all(sorted(group) == list(range(len(group))) for group in numbered.values())
    if not numbered["x"] or not is_whole or names.count(VALUE) != 1:
        raise UserError(
            f"{path}: expected a header x0, x1, …, c0, …, {VALUE}, found "
            f"{','.join(names)[:80]!r}; name the columns so"
        )
    ordered = [f"{letter}{place}" for letter in "xc" for place in sorted(numbered[letter])]
    return [names.index(name) for name in (*ordered, VALUE)], len(numbered["c"])


def _number(path: pathlib.Path, place: int, row: list[str], column: int) -> float:
    try:
        text = row[column].strip()
        return float(text) if text else math.nan
    except (IndexError, ValueError):
        shown = row[column][:40] if column < len(row) else "nothing"
        raise UserError(
            f"{path}: expected a number in column {column + 1} of row {place}, found {shown!r}; "
            "correct the row"
        ) from None


class RunLog:
    """The trials of a run, as a file that is made with the first of them and grows with each.

    `num_tuned` is m; `low` and `high`, float64 [n], are the domain.
    """

    def __init__(
        self, path: pathlib.Path, num_tuned: int, low: np.ndarray, high: np.ndarray
    ) -> None:
        self._path, self._low, self._high = path, low, high
        num_free = len(low) - num_tuned
        names = [f"x{place}" for place in range(num_tuned)] + [f"c{j}" for j in range(num_free)]
        self._header = [*names, VALUE]

    def append(self, trials: Trials) -> None:
        """Write trials down; they are on the disk before this returns.

        Raises:
          UserError: the file cannot be written.
        """
        own_units = to_domain(trials.points, self._low, self._high)
        try:
            is_new = not self._path.exists()
            with self._path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if is_new:
                    writer.writerow(self._header)
                for point, value in zip(own_units, trials.values, strict=True):
                    writer.writerow([*map(repr, point.tolist()), repr(float(value))])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(
                f"{self._path}: expected to write a trial, found: {error}; free some space, then "
                "go on with --resume"
            ) from error

    def values_at(self, points: np.ndarray) -> list[list[float]]:
        """Return for each of the points [N, n] the values that were written down for it."""
        written = self._written()
        own_units = to_domain(points, self._low, self._high)
        return [written.get(tuple(map(repr, point.tolist())), []) for point in own_units]

    def _written(self) -> dict[tuple[str, ...], list[float]]:
        """Return the values of each point; a last line that a killed run left unfinished is not."""
        written: dict[tuple[str, ...], list[float]] = {}
        if not self._path.exists():
            return written
        text = self._path.read_text(encoding="utf-8")
        whole, _, rest = text.rpartition("\n")
        if not whole:
            self._path.unlink()
        elif rest:
            files.replace(self._path, f"{whole}\n".encode())
        for line in whole.splitlines()[1:]:
            *point, value = line.split(",")
            written.setdefault(tuple(point), []).append(float(value))
        return written
