"""Progress of long work, on stderr: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_LINE_EVERY_S = 30.0

Advance = Callable[[int], None]
"""Called with the number of parts done since the last call."""


def percent(part: float, whole: float) -> str:
    """Format by how much `part` differs from `whole`: "-3.21%"; "-" if `whole` is 0."""
    return f"{100 * (part / whole - 1):+.2f}%" if whole else "-"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as text. The first column is aligned left, the others right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def line_of(cells: Sequence[str]) -> str:
        first, *rest = cells
        padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *padded]).rstrip()

    return "\n".join(map(line_of, lines))


class Reporter:
    """A silent reporter, and the interface of the others."""

    def say(self, message: str) -> None:
        """Show one line, which stays."""

    def task(self, label: str, total: int) -> Advance:
        """Begin a task of `total` parts; call the returned function with how many were done."""
        return lambda count: None

    @contextlib.contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """Give a function that shows the state of work whose length is unknown."""
        yield lambda message: None


class Terminal(Reporter):
    """A reporter that writes to stderr. As a context manager, it removes its bars at the end."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._lock = threading.Lock()

    def __enter__(self) -> Terminal:
        if sys.stderr is not None and sys.stderr.isatty():
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

    def say(self, message: str) -> None:
        """Write a line, above the bars if there are any."""
        if self._bars is not None:
            self._bars.console.print(message, highlight=False, markup=False)
        elif sys.stderr is not None:  # as where a program has closed it
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()

    def task(self, label: str, total: int) -> Advance:
        """Show a bar; without a terminal, write a line every half minute and at the end."""
        return self._bar(label, total) if self._bars is not None else self._lines(label, total)

    @contextlib.contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """Give a function whose message replaces the last one.

        Without a terminal, it writes a message as a line, at most every half minute.
        """
        if self._bars is not None:
            number = self._bars.add_task("", total=None)
            try:
                yield lambda message: self._bars.update(number, description=message)
            finally:
                self._bars.remove_task(number)
            return
        last_s = time.monotonic()

        def tell(message: str) -> None:
            nonlocal last_s
            if time.monotonic() - last_s > _LINE_EVERY_S:
                last_s = time.monotonic()
                self.say(f"  {message}")

        yield tell

    def _bar(self, label: str, total: int) -> Advance:
        bars = self._bars
        with self._lock:
            for task in bars.tasks:
                if task.finished:
                    bars.remove_task(task.id)
            number = bars.add_task(label, total=total)
        return lambda count: bars.advance(number, count)

    def _lines(self, label: str, total: int) -> Advance:
        done = 0
        began_s = told_s = time.monotonic()

        def advance(count: int) -> None:
            nonlocal done, told_s
            with self._lock:
                done += count
                now_s = time.monotonic()
                if done == total or now_s - told_s > _LINE_EVERY_S:
                    told_s = now_s
                    self.say(f"  {label}: {done} of {total} ({now_s - began_s:.0f} s)")

        return advance
