"""Quantise a model to int8 where that is measured to be faster, within an error that users name.

onnxruntime's own functions make the quantised nodes; here is chosen which nodes they make. Nodes of
one operator and one shape of weights form a group, and gain about the same. Each group is quantised
alone and measured, then each node of the groups that gain is quantised alone and compared with the
model on the user's samples. Nodes that gain most for their error come first; of these as many are
taken as stay within the error, by bisection, and the result is measured at length. This is done for
two kinds:

  dynamic  ranges of activations are computed when the model runs (MatMulInteger, QAttention, …)
  static   ranges come from the user's samples (QDQ, uint8 activations, int8 weights by channel)
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import itertools
import logging
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.parser
import onnx.version_converter

from environments.errors import UserError
from environments.isolation import guardian
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.measuring import FEW_PAIRS, Bench, Comparison
from environments.tensor_graphs.selection.partly import with_nodes

KINDS = ("dynamic", "static")
_TYPES: Mapping[str, Sequence[str]] = {
    "dynamic": ("MatMul", "Attention"),
    "static": ("MatMul", "Gemm", "Conv"),
}
_SMALLEST_WEIGHT = 256
# The first opset whose DequantizeLinear has a scale for each channel.
_BY_CHANNEL_OPSET = 13
# Shares of the time of a kind: for groups, for nodes, for bisection.
_GROUPS, _NODES, _BISECTED = 0.3, 0.6, 0.8
# But bisection tries so many sizes however late it is.
_MIN_TRIES = 3
_LEAST_ERROR = 1e-9
# What is not certainly slower may gain beside others.
_LEAST_GAIN = 1e-3


@dataclasses.dataclass(frozen=True)
class Judgement:
    """How far a quantised model's outputs lie from the model's, on the user's samples.

    Attributes:
      error: the largest of its outputs' relative errors, each |y - y'| / |y| over all samples.
      agreement: share of rows of outputs whose largest element stays the largest.
    """

    error: float
    agreement: float


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A model that was quantised.

    Attributes:
      kind: one of KINDS.
      nodes: names of the nodes that are quantised.
      over_float: its time over that of the float model; None if it was not measured.
    """

    kind: str
    nodes: tuple[str, ...]
    path: pathlib.Path
    judgement: Judgement
    over_float: Comparison | None = None


def time_of(attempt: Attempt) -> float:
    """Return an attempt's time over that of the float model; 1 if it was not measured."""
    return attempt.over_float.ratio.value if attempt.over_float else 1.0


class Samples:
    """The user's samples, and the outputs that the model gives for them."""

    def __init__(self, inputs: Sequence[Arrays], expected: Sequence[Mapping[str, np.ndarray]]):
        self.inputs = inputs
        self._expected = expected

    def judge(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> Judgement:
        """Compare a quantised model's outputs with the model's, sample by sample."""
        error, num_equal, num_rows = 0.0, 0, 0
        for name, first in self._expected[0].items():
            if not isinstance(first, np.ndarray) or first.dtype.kind != "f" or not first.size:
                continue
            before = [sample[name].astype(np.float64) for sample in self._expected]
            after = [sample[name].astype(np.float64) for sample in outputs]
            apart = sum(float(np.square(a - b).sum()) for a, b in zip(after, before, strict=True))
            size = sum(float(np.square(b).sum()) for b in before)
            share = np.sqrt(apart / max(size, 1e-300))
            error = max(error, float(share) if np.isfinite(share) else np.inf)
            if first.ndim and first.shape[-1] > 1:
                for a, b in zip(after, before, strict=True):
                    num_equal += int((a.argmax(-1) == b.argmax(-1)).sum())
                    num_rows += b[..., 0].size
        return Judgement(error, num_equal / num_rows if num_rows else 1.0)


class Quantizer:
    """Quantises one float model in several ways.

    Attributes:
      plain: a model of each kind with all its nodes quantised.
      is_late: whether groups were left out because the time for them was over.
    """

    def __init__(
        self,
        model: pathlib.Path,
        samples: Samples,
        on: Backend,
        directory: pathlib.Path,
        max_error: float,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._samples, self._on, self._directory = samples, on, directory
        self._max_error, self._tell = max_error, tell
        self._count, self.is_late = 0, False
        self._model = prepared(model)
        self._bench = Bench(model, samples.inputs[0], on)
        self.plain: list[Attempt] = []

    def best(self, kind: str, seconds: float, final_s: float) -> Attempt | None:
        """Return the fastest model of a kind within the error that was found; None without one.

        It is measured against the float model, for `final_s` seconds of wall time.
        """
        names = [name for group in self._groups(kind) for name in group]
        if not names:
            return None
        self._tell(f"quantising ({kind}): all {len(names)} nodes")
        variants = []
        for by_channel in (True, False):
            with contextlib.suppress(UserError):
                model = quantised(self._model, kind, names, self._samples.inputs, by_channel)
                if (attempt := self._attempt(kind, model, names)) is not None:
                    variants.append((attempt.judgement.error, by_channel, model, attempt))
        if not variants:
            return None
        # Scales by channel are finer, but use up more of the sums that overflow.
        *_, model, everything = min(variants, key=lambda variant: variant[:2])
        everything = self._measured(everything, final_s / 2)
        self.plain.append(everything)
        began_s = time.monotonic()
        errors = self._errors(kind, model, everything, began_s, seconds)
        chosen = self._bisected(kind, model, errors, began_s + _BISECTED * seconds)
        attempts = [] if chosen is None else [self._measured(chosen, final_s / 2)]
        if everything.judgement.error <= self._max_error:
            attempts.append(everything)
        return min(attempts, key=time_of, default=None)

    def _errors(
        self, kind: str, model: onnx.ModelProto, everything: Attempt, began_s: float, seconds: float
    ) -> dict[str, float]:
        """Return the errors of nodes of groups that gain; most gain for its error comes first."""
        gains, errors, groups = dict[str, float](), dict[str, float](), self._groups(kind)
        assert everything.over_float is not None
        if (all_of_them := everything.over_float.ratio.value) < 1:
            # What there is no time to measure is taken for average.
            error = everything.judgement.error / math.sqrt(len(everything.nodes))
            gains = dict.fromkeys(everything.nodes, (1 - all_of_them) / len(everything.nodes))
            errors = dict.fromkeys(everything.nodes, max(error, _LEAST_ERROR))
        for place, group in enumerate(groups):
            self._tell(f"quantising ({kind}): group {place + 1} of {len(groups)}")
            if time.monotonic() > began_s + 2 * _GROUPS * seconds:
                self.is_late = True
                break
            for name in group:
                gains.pop(name, None)
            alone = self._attempt(kind, model, group)
            if alone is None:
                continue
            compared = self._measured(alone, _GROUPS * seconds / (2 * len(groups))).over_float
            assert compared is not None
            if compared.is_slower:
                continue
            gain = max(1 - compared.ratio.value, _LEAST_GAIN) / len(group)
            # Errors of several nodes add up like their squares, as independent ones do.
            error = max(alone.judgement.error / math.sqrt(len(group)), _LEAST_ERROR)
            gains |= dict.fromkeys(group, gain)
            errors |= dict.fromkeys(group, error)
        for name in sorted(gains, key=lambda name: -errors[name]):
            if time.monotonic() > began_s + _NODES * seconds:
                break
            self._tell(f"quantising ({kind}): single nodes")
            if (single := self._attempt(kind, model, [name])) is not None:
                errors[name] = max(single.judgement.error, _LEAST_ERROR)
        ordered = sorted(gains, key=lambda name: -gains[name] / errors[name])
        return {name: errors[name] for name in ordered}

    def _bisected(
        self, kind: str, model: onnx.ModelProto, errors: Mapping[str, float], end_s: float
    ) -> Attempt | None:
        """Return the model with most of the first nodes quantised that is within the error."""
        ordered = list(errors)
        best, least, most, tries = None, 0, len(ordered), 0
        squares = itertools.accumulate(error**2 for error in errors.values())
        expected = sum(square <= self._max_error**2 for square in squares)
        size = max(expected, min(1, most))
        while least < most:
            self._tell(f"quantising ({kind}): {size} of {len(ordered)} nodes")
            attempt = self._attempt(kind, model, ordered[:size])
            if attempt is not None and attempt.judgement.error <= self._max_error:
                best, least = attempt, size
            else:
                most = size - 1
            tries += 1
            if time.monotonic() > end_s and best is not None and tries >= _MIN_TRIES:
                break
            size = (least + most + 1) // 2
        return best

    def _measured(self, attempt: Attempt, seconds: float) -> Attempt:
        compared = self._bench.compare(attempt.path, seconds=seconds, pairs=FEW_PAIRS)
        return dataclasses.replace(attempt, over_float=compared)

    def _groups(self, kind: str) -> list[list[str]]:
        """Return the names of nodes that can be quantised, by operator and shape of weights."""
        weights = {weight.name: tuple(weight.dims) for weight in self._model.graph.initializer}
        groups: dict[tuple, list[str]] = collections.defaultdict(list)
        for node in self._model.graph.node:
            shape = weights.get(node.input[1]) if len(node.input) > 1 else None
            if node.op_type in _TYPES[kind] and shape and np.prod(shape) >= _SMALLEST_WEIGHT:
                groups[(node.op_type, shape)].append(node.name)
        return list(groups.values())

    def _attempt(self, kind: str, model: onnx.ModelProto, nodes: Sequence[str]) -> Attempt | None:
        """Run a quantised model with only some of its nodes quantised; None if it does not run."""
        self._count += 1
        path = self._directory / f"quantised-{self._count}.onnx"
        try:
            onnx.save(with_nodes(self._model, model, nodes), path)
            program = self._on.open(path)
            outputs = [program.run(inputs) for inputs in self._samples.inputs]
        except UserError:
            return None
        return Attempt(kind, tuple(nodes), path, self._samples.judge(outputs))


def prepared(path: pathlib.Path) -> onnx.ModelProto:
    """Load a model so that it can be quantised: nodes have names, and Gemm is a product and a sum.

    What onnxruntime does to any model comes first: weights that are computed from constants are
    constants, and convolutions have their batch normalisations in them.

    Raises:
      UserError: this onnxruntime cannot quantise.
    """
    try:
        from onnxruntime.quantization.onnx_model import ONNXModel
    except ImportError as error:
        raise UserError(f"--quantize: onnxruntime.quantization is missing: {error}") from None
    rewritten = remote.isolated("onnxruntime-basic").rewritten(path)
    assert rewritten is not None, "this level optimises"
    model = rewritten[0]
    if _opset_of(model) < _BY_CHANNEL_OPSET:
        # onnx's converter raises errors of many kinds for what it does not convert.
        with contextlib.suppress(Exception):
            model = onnx.version_converter.convert_version(model, _BY_CHANNEL_OPSET)
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}.{place}"
    wrapped = ONNXModel(model)
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        wrapped.replace_gemm_with_matmul()
    model = wrapped.model
    for place, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}.new.{place}"
    return model


def _opset_of(model: onnx.ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if not entry.domain), default=1)


def quantised(
    model: onnx.ModelProto,
    kind: str,
    nodes: Sequence[str],
    samples: Sequence[Arrays],
    by_channel: bool = True,
) -> onnx.ModelProto:
    """Quantise some nodes of a model that `prepared` has returned.

    Ranges come from the samples. With `by_channel` each channel of a weight has a scale of its own,
    if the opset allows that.

    Raises:
      UserError: onnxruntime cannot quantise it.
    """
    from onnxruntime import quantization as ort

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    usual = {
        "nodes_to_quantize": list(nodes),
        "op_types_to_quantize": list(_TYPES[kind]),
        "per_channel": by_channel and _opset_of(model) >= _BY_CHANNEL_OPSET,
        "weight_type": ort.QuantType.QInt8,
    }
    try:
        with _silent(), guardian.make_directory() as name:
            path = pathlib.Path(name) / "quantised.onnx"
            if kind == "dynamic":
                ort.quantize_dynamic(copied, path, **usual)
            else:
                ort.quantize_static(
                    *(copied, path, _Reader(samples)),
                    quant_format=ort.QuantFormat.QDQ,
                    activation_type=ort.QuantType.QUInt8,
                    reduce_range=by_channel and _overflows(),
                    **usual,
                )
            return onnx.load(path)
    except Exception as error:
        # onnxruntime's functions raise errors of many kinds for what they cannot do.
        raise UserError(f"onnxruntime cannot quantise the model: {error}") from None


@functools.cache
def _overflows() -> bool:
    """Return whether sums of 8-bit products overflow here; those with weights of 7 bits do not.

    They do in onnxruntime's kernels for AVX2 and AVX-512 without VNNI, where two products are added
    in 16 bits. Fixed ranges of activations are used up, so that happens often.
    """
    text = "g (uint8[16,16] x, int8[16,16] w) => (int32[16,16] y) { y = MatMulInteger(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    largest = {"x": np.full((16, 16), 255, np.uint8), "w": np.full((16, 16), 127, np.int8)}
    sums = remote.isolated().open(model).run(largest)["y"]
    return bool((sums != 16 * 255 * 127).any())


class _Reader:
    """The samples as onnxruntime's calibration reads them."""

    def __init__(self, samples: Sequence[Arrays]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> Arrays | None:
        """Return the next sample; None after the last one."""
        sample = next(self._rest, None)
        return None if sample is None else dict(sample)

    def __len__(self) -> int:
        return 1


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what onnxruntime's functions say of themselves from a user's terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
