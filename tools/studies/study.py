"""What a study is: trials to measure, and the tables and pictures made of their records."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
"""JSON values by name: what a trial was given and what it came to."""

Records = Sequence[Record]
Value = str | Callable[[Record], Any]
"""A field of a record, or what is computed of it; None where a record has no such value."""

Cell = Callable[[Records], str]
"""The records that belong into one cell of a table -> its text."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One measurement.

    Attributes:
      name: its name, also of its files; no two trials of a study have the same.
      about: everything that decides what it comes to, as JSON values.
    """

    name: str
    about: Record


@dataclasses.dataclass(frozen=True)
class Table:
    """How a table is made of the records.

    Attributes:
      title: what stands above it.
      rows: the fields whose values name a row.
      columns: heading -> what stands below it.
      across: a field; each of its values gets the columns of its own. "" for none.
      derive: the records of the trials -> the records that the table shows.
      label: what stands above the names of the rows.
    """

    title: str
    rows: tuple[str, ...]
    columns: Mapping[str, Cell]
    across: str = ""
    derive: Callable[[Records], Iterable[Record]] = iter
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """How curves are drawn: the mean of each line's points, and their range.

    Attributes:
      name: name of the file, without its suffix.
      label: what the values are.
      derive: the records of the trials -> a record for each point: its `panel`, `line`,
        `iteration` and `value`.
    """

    name: str
    label: str
    derive: Callable[[Records], Iterable[Record]]


@dataclasses.dataclass(frozen=True)
class Study:
    """What is measured, and what is shown of it.

    Attributes:
      about: what the study shows, in the first line, and how; for --help.
      options: dataclass of what can be asked for; its fields become options.
      trials: makes the trials of a command line.
      measure: measures a trial: what it is about, and a directory for its files -> JSON values.
      tables, picture: what is made of the records.
      is_wrong: whether a record shows a fault, so that the exit status is 1.
      is_alone: whether each trial needs a process of its own.
    """

    about: str
    options: type
    trials: Callable[[Any], Iterable[Trial]]
    measure: Callable[[Record, pathlib.Path], Record]
    tables: Sequence[Table] = ()
    picture: Picture | None = None
    is_wrong: Callable[[Record], bool] = lambda record: False
    is_alone: bool = False


def values_of(records: Iterable[Record], value: Value) -> list[Any]:
    """Return a value of each record that has it."""
    values = (record.get(value) if isinstance(value, str) else value(record) for record in records)
    return [number for number in values if number is not None]


def _summary(value: Value, form: str, middle_fn: Callable[[list[Any]], float]) -> Cell:
    def cell(records: Records) -> str:
        numbers = values_of(records, value)
        if not numbers:
            return ""
        low, middle, high = (
            form.format(number) for number in (min(numbers), middle_fn(numbers), max(numbers))
        )
        return middle if low == high else f"{middle} ({low}..{high})"

    return cell


def median(value: Value, form: str = "{:.2f}") -> Cell:
    """Return a cell with the median of a value, and the range if the values differ."""
    return _summary(value, form, statistics.median)


def mean(value: Value, form: str = "{:.2f}") -> Cell:
    """Return a cell with the mean of a value, and the range if the values differ."""
    return _summary(value, form, statistics.fmean)


def total(value: Value) -> Cell:
    """Return a cell with the sum of a value."""
    return lambda records: f"{sum(values_of(records, value)):,}"


def first(value: Value, form: str = "{}") -> Cell:
    """Return a cell with the value of the first record that has it."""
    return lambda records: next(map(form.format, values_of(records, value)), "")
