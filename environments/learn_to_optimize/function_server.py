"""The program of a process that calls a user's function; see `isolated`.

do        with                               answer
load      name, pickled, dimensions, free,   low, high, source_sha256
bounds
evaluate  rows                               values or fault, and evaluations
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cloudpickle

from environments.errors import UserError
from environments.isolation.serving import serve
from environments.learn_to_optimize import loading
from environments.learn_to_optimize.functions import Objective, user_objective


class Server:
    """The function that was loaded."""

    def __init__(self) -> None:
        self._objective: Objective | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and return the answer."""
        return self._load(request) if request["do"] == "load" else self._evaluate(request["rows"])

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, pickled = request["name"], request["pickled"]
        if pickled is None:
            loaded = loading.load(name)
        else:
            # The caller's own function, over a socket that nobody else has.
            loaded = loading.Loaded(name, cloudpickle.loads(pickled), None)
        shape = (request["dimensions"], request["free"])
        self._objective = objective = user_objective(loaded, *shape, request["bounds"])
        return {
            "low": objective.low,
            "high": objective.high,
            "source_sha256": loaded.source_sha256,
        }

    def _evaluate(self, rows: Any) -> dict[str, Any]:
        assert self._objective is not None
        before = self._objective.evaluations.count
        answer: dict[str, Any] = {}
        try:
            answer["values"] = self._objective(rows)
        except UserError as error:
            answer["fault"] = str(error)
        return {**answer, "evaluations": self._objective.evaluations.count - before}


if __name__ == "__main__":
    serve(Server().answer)
