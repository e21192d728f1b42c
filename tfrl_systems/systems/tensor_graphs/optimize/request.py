"""What `tfrl optimize` is asked for: a model, where the faster one goes, and how to search."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.errors import UsageError
from environments.machine import num_processors
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.evaluating import Searching
from tfrl_systems.systems.tensor_graphs.problem import Rewriting

# All of it may take the seconds of the searches, twice those of a final measurement, and as many as
# the searches again, but not fewer or more than these.
_BESIDE_S = 5.0, 30.0
# Seconds of these that are left for starting the program and for writing the model, and the largest
# share of them that is.
_WRITING_S, _WRITING = 8.0, 0.7
# A final measurement takes this share of the searches' seconds, but not fewer or more than these.
_MEASURING = 0.2
_MEASURING_S = 2.0, 10.0

METHODS = ("regions", "greedy", "taso", "beam", "policy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization(Searching, Rewriting):
    """What to optimise, and how.

    Attributes:
      model: the model, an ONNX file.
      output: file to write the faster model to; by default MODEL.optimized.onnx beside the model.
      method: how to search (see tfrl evaluate tensor_graphs --help).
      policy: directory of a policy that tfrl train tensor_graphs learned; it leads the search of
        --method regions, or plays alone with --method policy.
      seconds: the time for all searches together, with the measurements of operators for them.
      strict: leave out rules that may change NaN or infinity, and those that may lose digits where
        large numbers cancel (see tfrl rules list); and what onnxruntime no longer runs at a size of
        0 with all its optimisation.
      contrib: also use operators that onnxruntime's CPU provider alone has (com.microsoft:
        MultiHeadAttention, SkipLayerNormalization, FastGelu, FusedMatMul, …), where they are
        faster; other runtimes do not load such a file.
      quantize: also make nodes int8 where that is faster, judged on the samples of --inputs; takes
        --seconds longer. Where nothing pays, the float model is written, and the reason said.
      max_error: largest relative error of an output that --quantize may cause, |y - y'| / |y| over
        all samples.
      measure: measure candidates end to end; without it the estimate decides.
      measure_seconds: seconds of each final measurement; longer measurements detect smaller gains;
        by default a fifth of --seconds, but 2 to 10.
      threads: threads that onnxruntime runs each operator on, wherever something is measured; with
        more than one the result is also held against the model on one thread, and is slower at
        neither number.
      dimensions: sizes for a dimension that the model leaves open, by the file's own name or as
        INPUT[AXIS]; the first leads the search, and the result is slower at none of them. Without
        it a batch is 1, others are found by trying, and half and double of them are measured too;
        where time is over before that, outputs are compared there, and it is said.
      inputs: file with an array for each of the model's inputs, by name, to compare outputs on and
        to measure with; its sizes are used as if they were given.
      freeze: give the written model the sizes that it is optimised at as fixed ones; what they make
        constant is computed beforehand.
      bound: also say how far from optimal the estimate is (for graphs of up to 30 operators).
      checkpoint: file to keep the search in; if it exists, the search goes on from it.
      report: file for a page with the graph before and after, and what each rule saves.
    """

    model: pathlib.Path = option(metavar="MODEL.onnx")
    output: pathlib.Path | None = option(None, metavar="OUT.onnx")
    method: str = option("regions", choices=METHODS)
    policy: pathlib.Path | None = option(None, metavar="DIR")
    strict: bool = False
    contrib: bool = False
    quantize: bool = False
    max_error: float | None = option(None, metavar="E", positive=True)
    measure: bool = True
    measure_seconds: float | None = option(None, metavar="N", positive=True)
    threads: int = option(1, metavar="N", minimum=1)
    inputs: tuple[pathlib.Path, ...] = option((), metavar="FILE.npz")
    freeze: bool = False
    bound: bool = False
    checkpoint: pathlib.Path | None = option(None, metavar="FILE")
    report: pathlib.Path | None = option(None, metavar="FILE.html")

    def __post_init__(self) -> None:
        """Accept a single path as the inputs."""
        super().__post_init__()
        paths = [self.inputs] if isinstance(self.inputs, str | pathlib.Path) else self.inputs
        object.__setattr__(self, "inputs", tuple(map(pathlib.Path, paths)))
        self._check_threads()
        self._check_quantizing()
        if self.contrib and self.objective in ("openvino", "onnxruntime-cuda"):
            raise UsageError(
                "--contrib: expected onnxruntime on the CPU, which has such operators, found "
                f"--objective {self.objective}; leave one of them out"
            )
        for name, sizes in self.dimensions if self.freeze else ():
            if len(sizes) > 1:
                raise UsageError(
                    "--freeze: expected one size for each dimension, found "
                    f"{name}={','.join(map(str, sizes))}; give one"
                )

    def _check_quantizing(self) -> None:
        """Raise UsageError unless what belongs together is there."""
        if self.max_error is not None and not self.quantize:
            raise UsageError("--max-error: expected --quantize with it, found none; add it")
        if not self.quantize:
            return
        if not self.inputs:
            raise UsageError(
                "--quantize: expected --inputs FILE.npz with samples to judge by, found none; give "
                "some"
            )
        if self.max_error is None or self.max_error >= 1:
            raise UsageError(
                "--quantize: expected --max-error E with 0 < E < 1, found "
                f"{'none' if self.max_error is None else self.max_error}; give 0.01, for example"
            )
        if not self.objective.startswith(("onnxruntime", "analytic")) or not self.measure:
            raise UsageError(
                "--quantize: expected onnxruntime and its measurements, which tell where int8 is "
                f"faster, found --objective {self.objective}, or --no-measure; leave them out"
            )

    def _check_threads(self) -> None:
        """Raise UsageError unless so many threads can be measured here."""
        if self.threads > num_processors():
            raise UsageError(
                f"--threads: expected at most {num_processors()}, the processors of this machine, "
                f"found {self.threads}; give fewer"
            )
        if self.threads > 1 and self.objective == "onnxruntime-cuda":
            raise UsageError(
                f"--threads: expected 1 with --objective onnxruntime-cuda, found {self.threads}; "
                "leave one of them out"
            )

    @property
    def place(self) -> pathlib.Path:
        """The file that the faster model is written to."""
        return self.output or self.model.with_name(f"{self.model.stem}.optimized.onnx")

    @property
    def final_seconds(self) -> float:
        """Wall time of a final measurement, in seconds."""
        return self.measure_seconds or _within(_MEASURING * self.seconds, *_MEASURING_S)

    @property
    def all_seconds(self) -> float:
        """Wall time that everything may take, up to writing the model, in seconds."""
        beside_s = _within(self.seconds, *_BESIDE_S)
        return (
            self.seconds + 2 * self.final_seconds + beside_s - min(_WRITING_S, _WRITING * beside_s)
        )


def _within(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))
