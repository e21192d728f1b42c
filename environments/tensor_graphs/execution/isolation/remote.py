"""A backend that runs models in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from environments.isolation.process import CrashError, Process, share_processor
from environments.tensor_graphs.execution.backends import (
    Arrays,
    Backend,
    Model,
    Program,
    Timer,
    backend,
    named,
    source_of,
)


def model_process(subject: str = "onnxruntime") -> Process:
    """Return a process that runs models, not started yet; `subject` is what messages call it."""
    return Process("environments.tensor_graphs.execution.isolation.server", subject)


_SHARED = model_process()
_REFERENCE = model_process("onnx's reference implementation")


@dataclasses.dataclass(frozen=True)
class Isolated:
    """A backend whose models are run by `own` in another process; by default all share one."""

    own: Backend
    process: Process = _SHARED

    @property
    def name(self) -> str:
        """Name by which `backend` finds it."""
        return self.own.name

    @property
    def version(self) -> str:
        """Version of the library."""
        return self.own.version

    @property
    def fuses(self) -> bool:
        """Whether it may run several operators as one kernel."""
        return self.own.fuses

    @property
    def threads(self) -> int:
        """On how many threads it runs each operator."""
        return self.own.threads

    def rewritten(self, model: Model) -> tuple[onnx.ModelProto, Backend] | None:
        """Return the model after the backend's optimisations; see `Backend.rewritten`."""
        answer = self.process.ask(do="rewrite", backend=self.name, model=content_of(model))
        if answer["model"] is None:
            return None
        optimised = onnx.ModelProto.FromString(answer["model"])
        return optimised, Isolated(backend(answer["backend"]), self.process)

    def open(self, model: Model) -> Program:
        """Load a model so that it can be run."""
        program = _Remote(self.process, self.name, model)
        program.number()
        return program


class _Remote:
    """A model that is open in another process; it is opened anew after that one's end."""

    def __init__(self, process: Process, name: str, model: Model) -> None:
        self._process, self._name, self._model = process, name, model
        self._number, self._generation = 0, -1
        # The arrays are kept, so that no others can get their id.
        self._timers: dict[tuple[int, bool], tuple[Arrays, int]] = {}

    def number(self) -> int:
        """Open the model unless it is open; return its number."""
        process = self._process
        process.start()
        if self._generation != process.generation:
            self._number, self._generation = process.number(), process.generation
            self._timers = {}
            content = content_of(self._model)
            self._ask(do="open", backend=self._name, model=content, number=self._number)
            weakref.finalize(self, process.forget, self._number)
        return self._number

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Run the model once; return its outputs by name."""
        return self._ask(do="run", program=self.number(), inputs=dict(inputs))["outputs"]

    def timer(self, inputs: Arrays, *, bound: bool = False) -> Timer:
        """Return a function that runs the model several times; see `Program.timer`."""

        def timed(times: int) -> float:
            request: dict[str, Any] = {"program": self.number(), "times": times}
            key = id(inputs), bound
            if key in self._timers:
                _, timer = self._timers[key]
            else:
                timer = self._process.number()
                request |= {"inputs": dict(inputs), "bound": bound}
            seconds = float(self._ask(do="time", timer=timer, **request)["seconds"])
            self._timers[key] = inputs, timer
            return seconds

        return timed

    def _ask(self, **request: Any) -> dict[str, Any]:
        try:
            return self._process.ask(**request)
        except CrashError as error:
            raise CrashError(f"{error} while it ran {named(self._model)}") from None


def evaluate(model: onnx.ModelProto, inputs: Arrays, within_s: float) -> list[Any]:
    """Return the outputs of a model in onnx's reference implementation.

    That is Python, and visits single elements: an operator may take hours on an image. So it runs
    in a process of its own, which is ended after `within_s` seconds.

    Raises:
      CrashError: it took longer.
      UserError: the model cannot be run.
    """
    _REFERENCE.send(do="evaluate", model=model.SerializeToString(), inputs=dict(inputs))
    return _REFERENCE.answer(within_s)["outputs"]


def start() -> None:
    """Start the process that backends share, so that it is ready by the time that it is needed."""
    _SHARED.start()


def content_of(model: Model) -> str | bytes:
    """Return what another process opens: as `source_of`, but it may work in another directory."""
    return source_of(model.absolute() if isinstance(model, pathlib.Path) else model)


@contextlib.contextmanager
def alone(on: Backend) -> Iterator[Backend]:
    """Lend a backend whose process runs nothing else and ends afterwards, or one that has none."""
    if not isinstance(on, Isolated):
        yield on
        return
    process = model_process()
    process.start()
    try:
        yield Isolated(on.own, process)
    finally:
        process.kill()


def run_on_one_processor(backends: Sequence[Backend]) -> None:
    """Have the processes of backends run on one processor, that of the first one.

    For models that run in turns: so what else the processor does, and whatever shares its caches,
    disturbs all of them alike. Nothing is done where a model runs on several threads.
    """
    remote = [backend for backend in backends if isinstance(backend, Isolated)]
    if len(remote) < len(backends) or any(backend.threads > 1 for backend in remote):
        return
    share_processor([backend.process for backend in remote])


def isolated(name: str = "onnxruntime", threads: int = 1) -> Backend:
    """Find a backend as `backend` does; its models run in a process of their own.

    Raises:
      UserError: no backend has this name, or it is not installed.
    """
    return Isolated(backend(name, threads))
