"""The file that keeps how far a search has come, so that another one can go on from there."""

from __future__ import annotations

import json
import pathlib
import time

from environments import files
from environments.errors import UserError
from environments.tensor_graphs.search import Progress, State, Step, Visited, replay

_EVERY_S = 5.0
_VERSION = 1


class Checkpoint:
    """A file of the path from a model to the best graph so far; None keeps nothing."""

    def __init__(self, path: pathlib.Path | None, method: str, start: State) -> None:
        self._path, self._method, self._start = path, method, start
        self._saved_s = 0.0

    def read(self) -> Progress | None:
        """Return how far the search that wrote the file has come; None without a file.

        Raises:
          UserError: the file holds something else, or a search of another start.
        """
        path = self._path
        if path is None or not path.exists():
            return None
        try:
            written = files.read_json(path)
            version, start = written["version"], written["start"]
            expansions = int(written["expansions"])
            steps = [Step(step["xfer"], tuple(step["location"])) for step in written["path"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: expected a search to resume, found something else "
                f"({type(error).__name__}); delete it to begin anew"
            ) from None
        if version != _VERSION or start != self._name:
            raise UserError(
                f"{path}: expected a search of this model ({self._name}), found one of another "
                f"({start}); delete it to begin anew"
            )
        try:
            return Progress(expansions, 0.0, replay(Visited(self._start), steps))
        except LookupError as error:
            raise UserError(
                f"{path}: expected steps that apply here, found {error}; it was written with "
                "other rules: delete it to begin anew"
            ) from None

    def save_sometimes(self, progress: Progress) -> None:
        """Save, if that was not done in the last seconds."""
        if time.monotonic() - self._saved_s >= _EVERY_S:
            self._saved_s = time.monotonic()
            self.save(progress.best, progress.expansions)

    def save(self, best: Visited, expansions: int) -> None:
        """Write the path to the best state, all of it or nothing."""
        if self._path is None:
            return
        written = {
            "version": _VERSION,
            "method": self._method,
            "start": self._name,
            "start_cost_ms": self._start.cost_ms,
            "best_cost_ms": best.cost_ms,
            "expansions": expansions,
            "path": [{"xfer": rule, "location": list(where)} for rule, where in best.path],
        }
        files.replace(self._path, json.dumps(written, indent=1).encode())

    @property
    def _name(self) -> str:
        """What identifies the graph of the start."""
        return f"{hash(self._start.graph) & (1 << 64) - 1:016x}"
