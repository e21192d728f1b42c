"""What the user sees: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

_LINE_EVERY_S = 30.0


class UsageError(Exception):
    """The command line is wrong; the message may have several lines. Exit status 2."""


def say(message: str) -> None:
    """One line for the user to read."""
    print(message, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """A result."""
    print(text, flush=True)


def show_json(value: Any) -> None:
    """A result as one JSON object."""
    print(json.dumps(value, allow_nan=False), flush=True)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under each other: the first to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def line_of(cells: Sequence[str]) -> str:
        first, *rest = cells
        padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *padded]).rstrip()

    return "\n".join([line_of(header), *map(line_of, lines[1:])])


def percent(part: float, whole: float) -> str:
    """By how much `part` differs from `whole`: "-3.21%"."""
    return f"{100 * (part / whole - 1):+.2f}%" if whole else "-"


class Progress:
    """Bars on a terminal, now and then a line where stderr is none. A context manager."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich import console, progress

            self._bars = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                console=console.Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def task(self, label: str, total: int) -> Callable[[int], None]:
        """Begins a task of `total` parts; returns what is to be called with 1 after each."""
        if self._bars is not None:
            return self._bar(label, total)
        return self._lines(label, total)

    def say(self, message: str) -> None:
        """A line that stays, above the bars."""
        if self._bars is not None:
            self._bars.console.print(message, highlight=False, markup=False)
        else:
            say(message)

    def _bar(self, label: str, total: int) -> Callable[[int], None]:
        bars = self._bars
        with self._lock:
            for task in bars.tasks:
                if task.finished:
                    bars.remove_task(task.id)
            number = bars.add_task(label, total=total)
        return lambda count: bars.advance(number, count)

    def _lines(self, label: str, total: int) -> Callable[[int], None]:
        done = 0
        began_s = told_s = time.monotonic()

        def advance(count: int) -> None:
            nonlocal done, told_s
            with self._lock:
                done += count
                now_s = time.monotonic()
                if done == total or now_s - told_s > _LINE_EVERY_S:
                    told_s = now_s
                    say(f"  {label}: {done} of {total} ({now_s - began_s:.0f} s)")

        return advance
