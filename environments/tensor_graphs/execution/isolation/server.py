"""The program of a process that runs models: `python -m …isolation.server SOCKET`.

A request is a dict, and so is its answer, with "error" if it failed (`isolation.serving`):

  do        with                           answer
  open      backend, model, number         -
  rewrite   backend, model                 model: None or the optimised model; backend
  run       program, inputs                outputs
  time      program, timer, times          seconds: of all these runs together
  exact     model, learned, trials,        outputs: of each trial, in float64, or None; seconds:
            seconds                        that this took
  evaluate  model, inputs                  outputs: those of onnx's reference implementation, a list

A model is a path or the content of a file. A program is the number under which it was opened.
Inputs are arrays by name. A timer is a number for some inputs; the first request with it has these,
and `bound`. "forget" lists numbers of programs that are no longer needed.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any

from environments.isolation.serving import serve
from environments.tensor_graphs.execution.backends import Model, Program, Timer, backend


class Server:
    """The models that are open, and what measures them on some inputs."""

    def __init__(self) -> None:
        self._programs: dict[int, Program] = {}
        self._timers: dict[tuple[int, int], Timer] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and return the answer."""
        self._forget(set(request.get("forget", ())))
        match request["do"]:
            case "open":
                program = backend(request["backend"]).open(_model(request["model"]))
                self._programs[request["number"]] = program
                return {}
            case "rewrite":
                optimised = backend(request["backend"]).rewritten(_model(request["model"]))
                if optimised is None:
                    return {"model": None, "backend": ""}
                return {"model": optimised[0].SerializeToString(), "backend": optimised[1].name}
            case "exact":
                return _exact(request)
            case "evaluate":
                from onnx.reference import ReferenceEvaluator

                evaluator = ReferenceEvaluator(_model(request["model"]))
                return {"outputs": evaluator.run(None, request["inputs"])}
            case "run":
                program = self._programs[request["program"]]
                return {"outputs": program.run(request["inputs"])}
        key = request["program"], request["timer"]
        if "inputs" in request:
            program = self._programs[request["program"]]
            self._timers[key] = program.timer(request["inputs"], bound=request["bound"])
        return {"seconds": self._timers[key](request["times"])}

    def _forget(self, numbers: set[int]) -> None:
        for number in numbers:
            self._programs.pop(number, None)
        for key in [key for key in self._timers if key[0] in numbers]:
            del self._timers[key]


def _exact(request: Mapping[str, Any]) -> dict[str, Any]:
    import onnx

    from environments.tensor_graphs import onnx_io
    from environments.tensor_graphs.execution.precise import Budgeted, Precise

    learned = [onnx.ValueInfoProto.FromString(value) for value in request["learned"]]
    graph = onnx_io.read(_model(request["model"]), learned=learned)
    budgeted = Budgeted(Precise(graph), request["seconds"])
    outputs = [budgeted.run(inputs) for inputs in request["trials"]]
    return {"outputs": outputs, "seconds": budgeted.spent_s}


def _model(source: str | bytes) -> Model:
    return pathlib.Path(source) if isinstance(source, str) else source


def main() -> None:
    """Answer requests until the socket is closed."""
    # The caller prepares its first request meanwhile. If it is missing, the answer says so.
    with contextlib.suppress(ImportError):
        import onnxruntime  # noqa: F401
    serve(Server().answer)


if __name__ == "__main__":
    main()
