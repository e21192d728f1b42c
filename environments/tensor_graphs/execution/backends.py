"""Backends run models: `backend(NAME).open(model).run(inputs)`.

  onnxruntime                             on the CPU, at its highest level of optimisation
  onnxruntime-{disable,basic,extended}    on the CPU, at a lower level
  onnxruntime-cuda                        on a GPU, by its CUDA execution provider
  openvino                                on the CPU, if OpenVINO is installed
  NAME@N                                  any of those on the CPU, each operator on N threads

On one thread of the CPU the clock is the CPU time of the process, which other processes on the
machine disturb least. On several threads and on a GPU the clock is wall time.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from environments.errors import UserError

# Processes that run models start in half the time without onnx.
if TYPE_CHECKING:
    import onnx

Model: TypeAlias = "onnx.ModelProto | pathlib.Path | bytes"
"""A model, its path, or its file's content. Only with a path are weights in other files found."""

Arrays = Mapping[str, np.ndarray]
"""Arrays by name of the model's input or output."""

Timer = Callable[[int], float]
"""Runs a model the given number of times in a row; returns the seconds that all runs took."""

_LEVELS = ("disable", "basic", "extended", "all")
_SILENT = 4


class Program(Protocol):
    """A model that is ready to run."""

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Run the model once; return its outputs by name."""

    def timer(self, inputs: Arrays, *, bound: bool = False) -> Timer:
        """Return a function that runs the model on these inputs, and says how long that takes.

        If it is `bound`, neither inputs nor outputs are copied for each run. A user's program
        copies them, so the others compare whole models, and these compare operators.
        """


class Backend(Protocol):
    """Runs models. Measurements are comparable only for the same name and version."""

    @property
    def name(self) -> str:
        """Name by which `backend` finds it."""

    @property
    def version(self) -> str:
        """Version of the library."""

    @property
    def fuses(self) -> bool:
        """Whether it may run several operators as one kernel."""

    @property
    def threads(self) -> int:
        """On how many threads it runs each operator."""

    def rewritten(self, model: Model) -> tuple[onnx.ModelProto, Backend] | None:
        """Return the model after the backend's optimisations, and a backend that adds no others.

        None if the library does not show the optimised model.

        Raises:
          UserError: the library refuses the model.
        """

    def open(self, model: Model) -> Program:
        """Load a model so that it can be run.

        Raises:
          UserError: the library refuses it.
        """


@dataclasses.dataclass(frozen=True)
class OnnxRuntime:
    """onnxruntime as a backend, at one of its levels of optimisation, on the CPU or a GPU."""

    level: str = "all"
    cuda: bool = False
    threads: int = 1

    @property
    def name(self) -> str:
        """Name by which `backend` finds it."""
        suffix = "" if self.level == "all" else f"-{self.level}"
        return _on("onnxruntime" + ("-cuda" if self.cuda else "") + suffix, self.threads)

    @property
    def version(self) -> str:
        """Version of onnxruntime."""
        import onnxruntime

        return onnxruntime.__version__

    @property
    def fuses(self) -> bool:
        """Whether it fuses operators: at any level but disable."""
        return self.level != "disable"

    def rewritten(self, model: Model) -> tuple[onnx.ModelProto, Backend] | None:
        """Return the optimised model; None on a GPU, where it contains copies to and from the GPU.

        It is None too if the level of optimisations is "disable".
        """
        if not self.fuses or self.cuda:
            return None
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "optimised.onnx"
            self.open(model, path)
            import onnx

            return onnx.load(path), dataclasses.replace(self, level="disable")

    def open(self, model: Model, write_to: pathlib.Path | None = None) -> Program:
        """Load a model, and write the optimised model to a file if one is given."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        # Threads that wait for the next run would slow down the model that is measured in turns.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = _SILENT
        levels = onnxruntime.GraphOptimizationLevel
        kind = "ORT_DISABLE_ALL" if self.level == "disable" else f"ORT_ENABLE_{self.level.upper()}"
        options.graph_optimization_level = getattr(levels, kind)
        if write_to is not None:
            options.optimized_model_filepath = str(write_to)
        providers = ["CUDAExecutionProvider"] * self.cuda + ["CPUExecutionProvider"]
        if not set(providers) <= set(onnxruntime.get_available_providers()):
            raise UserError(
                "this onnxruntime has no CUDA execution provider; install onnxruntime-gpu"
            )
        source = source_of(model)
        try:
            session = onnxruntime.InferenceSession(source, options, providers)
        except Exception as error:
            # onnxruntime's exceptions have no base class other than Exception.
            raise UserError(f"onnxruntime cannot load {named(model)}: {_line(error)}") from error
        # CPU time does not run while a GPU works, and adds up what threads do at the same time.
        clock = time.perf_counter if self.cuda or self.threads > 1 else time.process_time
        return _Session(session, "cuda" if self.cuda else "cpu", clock)


@dataclasses.dataclass(frozen=True)
class _Session:
    session: Any
    device: str
    clock: Callable[[], float]

    def run(self, inputs: Arrays) -> dict[str, Any]:
        try:
            values = self.session.run(None, inputs)
        except Exception as error:
            raise UserError(f"onnxruntime cannot run the model: {_line(error)}") from error
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, values, strict=True))

    def timer(self, inputs: Arrays, *, bound: bool = False) -> Timer:
        run = self._bound(inputs) if bound else lambda: self.run(inputs)
        return _timer(run, self.clock)

    def _bound(self, inputs: Arrays) -> Callable[[], Any]:
        import onnxruntime

        # The outputs' sizes are known only after a run.
        outputs = self.run(inputs)
        binding = self.session.io_binding()
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device)
            for name, array in inputs.items()
        }
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name, array in outputs.items():
            if isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
                value = onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device)
                binding.bind_ortvalue_output(name, value)
            else:
                binding.bind_output(name)
        return lambda: self.session.run_with_iobinding(binding)


@dataclasses.dataclass(frozen=True)
class OpenVino:
    """OpenVINO as a backend."""

    threads: int = 1
    fuses: bool = True

    @property
    def name(self) -> str:
        """Name by which `backend` finds it."""
        return _on("openvino", self.threads)

    def rewritten(self, model: Model) -> None:
        """Return None, because OpenVINO does not show how it optimises a model."""
        return None

    @property
    def version(self) -> str:
        """Version of OpenVINO."""
        import openvino

        return openvino.__version__

    def open(self, model: Model) -> Program:
        """Load a model so that it can be run."""
        import openvino

        core = openvino.Core()
        source = source_of(model)
        settings = {"INFERENCE_NUM_THREADS": self.threads, "INFERENCE_PRECISION_HINT": "f32"}
        clock = time.process_time if self.threads == 1 else time.perf_counter
        try:
            return _Compiled(core.compile_model(core.read_model(source), "CPU", settings), clock)
        except RuntimeError as error:
            raise UserError(f"OpenVINO cannot load {named(model)}: {_line(error)}") from error


@dataclasses.dataclass(frozen=True)
class _Compiled:
    compiled: Any
    clock: Callable[[], float]

    def run(self, inputs: Arrays) -> dict[str, Any]:
        try:
            values = self.compiled(dict(inputs))
        except RuntimeError as error:
            raise UserError(f"OpenVINO cannot run the model: {_line(error)}") from error
        return {output.get_any_name(): values[output] for output in self.compiled.outputs}

    def timer(self, inputs: Arrays, *, bound: bool = False) -> Timer:
        request = self.compiled.create_infer_request()
        request.infer(dict(inputs))
        run = (lambda: request.infer(None)) if bound else (lambda: self.run(inputs))
        return _timer(run, self.clock)


def _timer(run: Callable[[], Any], clock: Callable[[], float]) -> Timer:
    def timed(times: int) -> float:
        begin = clock()
        for _ in range(times):
            run()
        return clock() - begin

    return timed


def _on(name: str, threads: int) -> str:
    return name if threads == 1 else f"{name}@{threads}"


_RUNTIMES = {
    runtime.name: runtime
    for runtime in (OnnxRuntime(level, cuda) for cuda in (False, True) for level in _LEVELS)
}
NAMES = (*_RUNTIMES, "openvino")
"""The names of all backends, installed or not."""


def backend(name: str = "onnxruntime", threads: int = 1) -> Backend:
    """Find a backend by its name, which may say on how many threads it runs each operator.

    Raises:
      UserError: no backend has this name, or it is not installed.
    """
    plain, _, number = name.partition("@")
    threads = int(number or threads)
    if plain == "openvino":
        if importlib.util.find_spec("openvino") is None:
            raise UserError("OpenVINO is not installed; install openvino, or choose onnxruntime")
        return OpenVino(threads)
    if plain not in _RUNTIMES:
        raise UserError(f"no backend {name!r}; there are {', '.join(NAMES)}")
    return dataclasses.replace(_RUNTIMES[plain], threads=threads)


def source_of(model: Model) -> str | bytes:
    """Return what runtimes open: a model's path as text, or its file's content."""
    if isinstance(model, pathlib.Path):
        return str(model)
    return model if isinstance(model, bytes) else model.SerializeToString()


def named(model: Model) -> str:
    """Return what messages call a model."""
    if isinstance(model, pathlib.Path):
        return str(model)
    if isinstance(model, bytes):
        import onnx

        model = onnx.ModelProto.FromString(model)
    return f"model {model.graph.name!r}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
