"""What runs models: `backend(NAME).open(model).run(inputs)`.

  onnxruntime                             on the CPU, optimised as far as it can
  onnxruntime-{disable,basic,extended}    optimised less
  onnxruntime-cuda                        its CUDA execution provider
  openvino                                if it is installed

On the CPU one thread works, and time is the CPU time of the process: on a machine that others use
too it is the only clock that holds still. On a GPU it is wall time.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import onnx

from environments.errors import UserError

Model = onnx.ModelProto | pathlib.Path
"""A file where the model is: it may have weights in other files."""

Arrays = Mapping[str, np.ndarray]

_LEVELS = ("disable", "basic", "extended", "all")
_SILENT = 4


class Program(Protocol):
    """A model that is ready to run."""

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """The outputs by name."""
        ...

    def bind(self, inputs: Arrays) -> Callable[[], None]:
        """Runs it on these inputs again and again; nothing is copied in or out."""
        ...


class Backend(Protocol):
    """Runs models. A measurement holds for one name and version."""

    @property
    def name(self) -> str:
        """What it is known by."""
        ...

    @property
    def version(self) -> str:
        """Of the library."""
        ...

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether it makes one kernel of several operators."""
        ...

    def rewritten(self, model: Model) -> tuple[onnx.ModelProto, Backend] | None:
        """What it makes of a model, and what runs that as it is; None if it does not tell.

        Raises:
          UserError: the library refuses the model.
        """
        ...

    def open(self, model: Model) -> Program:
        """Prepares a model.

        Raises:
          UserError: the library refuses it.
        """
        ...


@dataclasses.dataclass(frozen=True)
class OnnxRuntime:
    """See the module.

    Attributes:
      level: of its optimisations.
      cuda: whether the GPU computes what it can.
    """

    level: str = "all"
    cuda: bool = False

    @property
    def name(self) -> str:
        """What `backend` knows it by."""
        return "onnxruntime" + ("-cuda" if self.cuda else "") + _suffix(self.level)

    @property
    def clock(self) -> Callable[[], float]:
        """CPU time, or wall time where a GPU works."""
        return time.perf_counter if self.cuda else time.process_time

    @property
    def version(self) -> str:
        """Of onnxruntime."""
        import onnxruntime

        return onnxruntime.__version__

    @property
    def fuses(self) -> bool:
        """Unless it is told to leave the model as it is."""
        return self.level != "disable"

    def rewritten(self, model: Model) -> tuple[onnx.ModelProto, Backend] | None:
        """What onnxruntime's optimisation ends with; with a GPU it has copies to and fro."""
        if not self.fuses or self.cuda:
            return None
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "optimised.onnx"
            self.open_optimised(model, path)
            return onnx.load(path), OnnxRuntime("disable")

    def open(self, model: Model) -> Program:
        """Prepares a model."""
        return self.open_optimised(model)

    def open_optimised(self, model: Model, write_to: pathlib.Path | None = None) -> Program:
        """Prepares a model, and writes what onnxruntime makes of it."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
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
        source = str(model) if isinstance(model, pathlib.Path) else model.SerializeToString()
        try:
            session = onnxruntime.InferenceSession(source, options, providers)
        except Exception as error:
            # onnxruntime's exceptions have no base class but this one.
            raise UserError(f"onnxruntime cannot load {_named(model)}: {_line(error)}") from error
        return _Session(session, "cuda" if self.cuda else "cpu")


@dataclasses.dataclass(frozen=True)
class _Session:
    session: Any
    device: str

    def run(self, inputs: Arrays) -> dict[str, Any]:
        try:
            values = self.session.run(None, inputs)
        except Exception as error:
            raise UserError(f"onnxruntime cannot run the model: {_line(error)}") from error
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, values, strict=True))

    def bind(self, inputs: Arrays) -> Callable[[], None]:
        import onnxruntime

        # What sizes the outputs have, is known after a run.
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
    """See the module."""

    name: str = "openvino"
    clock: Callable[[], float] = time.process_time
    fuses: bool = True

    def rewritten(self, model: Model) -> None:
        """OpenVINO does not tell."""
        return None

    @property
    def version(self) -> str:
        """Of OpenVINO."""
        import openvino

        return openvino.__version__

    def open(self, model: Model) -> Program:
        """Prepares a model."""
        import openvino

        core = openvino.Core()
        source = str(model) if isinstance(model, pathlib.Path) else model.SerializeToString()
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        try:
            return _Compiled(core.compile_model(core.read_model(source), "CPU", settings))
        except RuntimeError as error:
            raise UserError(f"OpenVINO cannot load {_named(model)}: {_line(error)}") from error


@dataclasses.dataclass(frozen=True)
class _Compiled:
    compiled: Any

    def run(self, inputs: Arrays) -> dict[str, Any]:
        try:
            values = self.compiled(dict(inputs))
        except RuntimeError as error:
            raise UserError(f"OpenVINO cannot run the model: {_line(error)}") from error
        return {output.get_any_name(): values[output] for output in self.compiled.outputs}

    def bind(self, inputs: Arrays) -> Callable[[], None]:
        request = self.compiled.create_infer_request()
        request.infer(dict(inputs))
        return lambda: request.infer(None)


def backend(name: str = "onnxruntime") -> Backend:
    """The backend of that name.

    Raises:
      UserError: there is none, or it is not installed.
    """
    if name == "openvino":
        if importlib.util.find_spec("openvino") is None:
            raise UserError("OpenVINO is not installed; install openvino, or choose onnxruntime")
        return OpenVino()
    known = {one.name: one for cuda in (False, True) for one in _runtimes(cuda)}
    if name not in known:
        names = ", ".join([*known, "openvino"])
        raise UserError(f"no backend {name!r}; there are {names}")
    return known[name]


def _runtimes(cuda: bool) -> list[OnnxRuntime]:
    return [OnnxRuntime(level, cuda) for level in _LEVELS]


def _suffix(level: str) -> str:
    return "" if level == "all" else f"-{level}"


def _named(model: Model) -> str:
    return str(model) if isinstance(model, pathlib.Path) else f"model {model.graph.name!r}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
