"""A user's function in a process of its own, wherever it is called.

What it prints goes to stderr. If it ends its process, or crashes it, the caller gets one line. Its
module is read anew with each new process, so an edited module is never half old. A function of a
notebook or script travels there by value.
"""

from __future__ import annotations

import threading
from typing import Any

import cloudpickle
import numpy as np

from environments.errors import UserError, one_line
from environments.isolation.process import CrashError, Process
from environments.learn_to_optimize import loading, sources
from environments.learn_to_optimize.functions import (
    Objective,
    check_free,
    identified,
    make_objective,
)

_PROGRAM = "environments.learn_to_optimize.function_server"


class IsolatedFunction:
    """A user's function; a copy that is sent to another process starts one of its own there.

    Args:
      bounds: the function's domain, as {"low": …, "high": …}; None for its attribute.
      pickled: the function itself, if others cannot import it.
      source_sha256: what the function must be; None for whatever it is.

    Attributes:
      evaluations: counts what finding a fault took beyond the rows that were asked for.
    """

    def __init__(
        self,
        name: str,
        dimensions: int,
        free: int,
        bounds: dict[str, list[float]] | None,
        pickled: bytes | None = None,
        source_sha256: str | None = None,
    ) -> None:
        self.evaluations = loading.Evaluations()
        self._name, self._shape, self._bounds = name, (dimensions, free), bounds
        self._pickled, self._source_sha256 = pickled, source_sha256
        self._process = Process(_PROGRAM, "its process", shows_output=True)
        self._generation = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what it takes to start another process."""
        arguments = (self._name, *self._shape, self._bounds, self._pickled, self._source_sha256)
        # The objective counts with the same object.
        return IsolatedFunction, arguments, {"evaluations": self.evaluations}

    def load(self) -> tuple[np.ndarray, np.ndarray, str | None]:
        """Load the function; return the bounds of its domain, and the digest of its source.

        Raises:
          UserError: it cannot be loaded, or is not what it must be.
        """
        request = {"name": self._name, "pickled": self._pickled, "bounds": self._bounds}
        dimensions, free = self._shape
        try:
            answer = self._process.ask(do="load", dimensions=dimensions, free=free, **request)
        except CrashError as error:
            raise UserError(
                f"{self._name}: expected to import its module, found that {error}; correct it"
            ) from None
        source_sha256 = answer["source_sha256"]
        if self._source_sha256 not in (None, source_sha256):
            self._process.kill()
            raise UserError(
                f"{self._name}: expected the function that the run began with, found that its "
                "source has changed since; undo the change, or begin a new run"
            )
        self._generation = self._process.generation
        self._source_sha256 = source_sha256
        self._bounds = {"low": answer["low"].tolist(), "high": answer["high"].tolist()}
        return answer["low"], answer["high"], source_sha256

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return values [N] at points [N, n] of the box.

        Raises:
          UserError: the function fails, or ends its process.
        """
        with self._lock:
            self._process.start()
            if self._generation != self._process.generation:
                self.load()
            try:
                answer = self._process.ask(do="evaluate", rows=rows)
            except CrashError as error:
                raise UserError(f"{self._name}: {self._where(rows)}, found that {error}") from None
        self.evaluations.add(answer["evaluations"] - len(rows))
        if "fault" in answer:
            raise UserError(answer["fault"])
        values: np.ndarray = answer["values"]
        return values

    def _where(self, rows: np.ndarray) -> str:
        assert self._bounds is not None
        low, high = (np.array(self._bounds[side]) for side in ("low", "high"))
        point = loading.to_domain(rows[0], low, high)
        dimensions, free = self._shape
        first = loading.describe(point, dimensions - free)
        return f"expected {len(rows)} values for points beginning with {first}"


def isolated_objective(
    name: str, dimensions: int = 2, free: int = 1, bounds: Any = None
) -> Objective:
    """Make an objective by its name; see `make_objective`. The user's own has its own process.

    Raises:
      UserError: there is no such function, or it cannot be sent to a process.
    """
    if ":" not in name:
        return make_objective(name, dimensions, free, bounds)
    check_free(name, dimensions, free)
    domain = None
    if bounds is not None:
        low, high = loading.read_bounds(name, dimensions, bounds)
        domain = {"low": low.tolist(), "high": high.tolist()}
    pickled = source_sha256 = None
    if name.startswith(f"{sources.MAIN}:"):
        loaded = loading.load(name)
        pickled, source_sha256 = _pickled(loaded), loaded.source_sha256
    function = IsolatedFunction(name, dimensions, free, domain, pickled)
    low, high, read_sha256 = function.load()
    sha256 = source_sha256 or read_sha256
    shape = dimensions, free
    return identified(name, shape, function, (low, high), sha256, function.evaluations)


def _pickled(loaded: loading.Loaded) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(loaded.function)
    except Exception as error:  # whatever it holds says in its own way that it cannot travel
        raise UserError(
            f"{loaded.name}: expected a function that can be sent to another process, found "
            f"{one_line(error)}; make what it needs inside it, or put it into a module"
        ) from error
    return data
