"""Compute what a model means: its outputs in float64, without the rounding of the types it uses.

A numerical analyst judges two ways to compute one thing by their distances from the true value.
`Precise` gives that value: it evaluates the graph node by node, all floating-point numbers in
float64. Operators are those of `operators.table`. One that the table does not have (an Opaque node)
runs alone: in onnxruntime's float64 kernel, else in onnx's reference implementation if that is not
too slow, else in onnxruntime with the types that the model has.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from environments.errors import UserError
from environments.isolation.process import CrashError
from environments.tensor_graphs.execution.backends import Arrays
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.graph.graph import Graph, ordered
from environments.tensor_graphs.graph.nodes import INPUT, Attributes, Node, Ref
from environments.tensor_graphs.onnx_io import bodies, opaque
from environments.tensor_graphs.onnx_io.tensors import is_numpy
from environments.tensor_graphs.operators import dimensions, table
from environments.tensor_graphs.operators.operator import FLOAT_TYPES

Values = list[np.ndarray]
_Run = Callable[[Values], Values]
_Runner = Callable[[onnx.ModelProto], Callable[[Arrays], Sequence[Any]]]

# Outputs for one input may take so long, and an operator in onnx's reference implementation, the
# start of its process included.
_ONE_INPUT_S, _IN_ONNX_S = 16.0, 3.0

_FAILURES = (ArithmeticError, IndexError, MemoryError, TypeError, UserError, ValueError)


class ImpreciseError(Exception):
    """A model has a part that cannot be computed in float64."""


class Precise:
    """A model whose outputs are computed in float64."""

    def __init__(self, graph: Graph) -> None:
        """Remember the graph; nothing is computed yet."""
        self.graph = graph
        self._kernels: dict[tuple[int, tuple[np.dtype, ...]], _Kernel] = {}
        # Operators that onnx's reference implementation takes too long for.
        self._slow: set[str] = set()

    def run(self, inputs: Arrays, until_s: float = math.inf) -> dict[str, np.ndarray]:
        """Return the outputs by name; those of floating-point types are float64.

        Raises:
          ImpreciseError: a part of the model cannot be computed, or not on these inputs, or not
            until the time `until_s` of `time.monotonic`.
        """
        frame = _Frame(self, self.graph.outputs, inputs, {}, until_s)
        with np.errstate(all="ignore"):
            values = frame.run()
        return dict(zip(self.graph.output_names, values, strict=True))

    def value(self, ref: Ref) -> np.ndarray:
        """Return a constant.

        Raises:
          ImpreciseError: it cannot be computed.
        """
        with np.errstate(all="ignore"):
            return _Frame(self, [ref], {}, {}).run()[0]

    def computed(self, number: int, arrays: Values, sizes: Mapping[str, int]) -> Values:
        """Return the outputs of a node without bodies, given those that it uses."""
        node = self.graph.nodes[number]
        try:
            if node.op in table.OPERATORS:
                return list(table.evaluate(node.op, arrays, _concrete(node.attributes, sizes)))
            key = (number, tuple(array.dtype for array in arrays))
            if key not in self._kernels:
                self._kernels[key] = self._kernel(node)
            outputs = iter(self._kernels[key](arrays))
            used = node.attribute("outputs")
            return [next(outputs) if is_used else np.empty(0) for is_used in used]
        except _FAILURES as error:
            raise ImpreciseError(f"{node.op}: {error}") from error

    def _kernel(self, node: Node) -> _Kernel:
        """Return what computes an Opaque node."""
        declared = [self.graph.type_of(ref) for ref in node.inputs if ref is not None]
        own = [kind.dtype if kind is not None else "" for kind in declared]
        operator = node.attribute("operator")
        if not all(map(is_numpy, own)):
            raise ImpreciseError(f"{operator} of types that NumPy lacks")
        wide = ["float64" if dtype in FLOAT_TYPES else dtype for dtype in own]
        runners = ((_in_onnxruntime, wide), (self._in_onnx, wide), (_in_onnxruntime, own))
        return _Kernel(
            operator, [functools.partial(self._prepared, node, *runner) for runner in runners]
        )

    def _prepared(self, node: Node, runner: _Runner, dtypes: Sequence[str]) -> _Run:
        """Return what runs a node on arrays that it turns into these types."""
        model = self._model(node, dtypes)
        return functools.partial(_outputs, runner(model), model, dtypes)

    def _in_onnx(self, model: onnx.ModelProto) -> Callable[[Arrays], Sequence[Any]]:
        operator = model.graph.node[0].op_type

        def run(inputs: Arrays) -> Sequence[Any]:
            # Other nodes of this kind would take as long.
            if operator in self._slow:
                raise ImpreciseError(f"{operator} takes too long")
            try:
                return remote.evaluate(model, inputs, _IN_ONNX_S)
            except CrashError:
                self._slow.add(operator)
                raise

        return run

    def _model(self, node: Node, dtypes: Sequence[str]) -> onnx.ModelProto:
        """Return a model of one node, whose inputs have these types."""
        names = ["" if ref is None else f"i{place}" for place, ref in enumerate(node.inputs)]
        numbers = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in dtypes]
        inputs = [
            helper.make_tensor_value_info(name, number, None)
            for name, number in zip(filter(None, names), numbers, strict=True)
        ]
        outputs = [f"o{place}" for place in range(len(node.types))]
        used = itertools.compress(outputs, node.attribute("outputs"))
        model = onnx.ModelProto()
        shell = self.graph.header.shell
        model.ir_version = shell.ir_version
        model.opset_import.extend(shell.opset_import)
        model.functions.extend(shell.functions)
        model.graph.name = "node"
        model.graph.node.append(opaque.to_onnx_node(node, names, outputs))
        model.graph.input.extend(inputs)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in used)
        return model


class _Kernel:
    """An operator that is run alone, by the first of several ways, the most exact first, that work.

    Each of the makers prepares to run it in another way.
    """

    def __init__(self, operator: str, makers: list[Callable[[], _Run]]) -> None:
        self._operator, self._makers = operator, makers
        self._run: _Run | None = None

    def __call__(self, arrays: Values) -> Values:
        while self._makers:
            try:
                self._run = self._run or self._makers[0]()
                return self._run(arrays)
            except Exception:
                # onnx and onnxruntime have no base class for what they raise.
                self._run = None
                del self._makers[0]
        raise ImpreciseError(f"{self._operator} cannot be run alone")


class Budgeted:
    """A model in float64 that computes no further outputs once it has taken some seconds."""

    def __init__(self, precise: Precise, seconds: float) -> None:
        self._precise, self.seconds = precise, seconds
        self.spent_s = 0.0

    def run(self, inputs: Arrays) -> dict[str, np.ndarray] | None:
        """Return the outputs; None if they cannot be computed, or not in time."""
        if self.spent_s > self.seconds:
            return None
        began_s = time.monotonic()
        try:
            return self._precise.run(inputs, began_s + _ONE_INPUT_S)
        except ImpreciseError:
            return None
        finally:
            self.spent_s += time.monotonic() - began_s


@dataclasses.dataclass
class _Frame:
    """One evaluation of outputs of the graph, or of a body.

    `bound` has the values of a body's inputs, by the number of their node.
    """

    precise: Precise
    outputs: Sequence[Ref]
    inputs: Arrays
    bound: Mapping[int, np.ndarray]
    until_s: float = math.inf
    values: dict[int, Values] = dataclasses.field(default_factory=dict)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)

    def run(self) -> Values:
        """Return the values of the outputs."""
        order = list(ordered(self.precise.graph.nodes, self.outputs, _needed))
        waiting = collections.Counter({ref.node for ref in self.outputs})
        for number in order:
            waiting.update(_needed(self.precise.graph.nodes[number]))
        for number in order:
            if time.monotonic() > self.until_s:
                raise ImpreciseError("it took too long")
            node = self.precise.graph.nodes[number]
            self.values[number] = self._evaluated(number, node)
            self._note_sizes(node, self.values[number])
            for source in _needed(node):
                waiting[source] -= 1
                if not waiting[source]:
                    # Large models would not fit into memory with all of their inner values.
                    del self.values[source]
        return [self._at(ref) for ref in self.outputs]

    def _at(self, ref: Ref) -> np.ndarray:
        return self.values[ref.node][ref.output]

    def _evaluated(self, number: int, node: Node) -> Values:
        if number in self.bound:
            return [self.bound[number]]
        if node.op == INPUT:
            if not node.is_model_input or node.attribute("name") not in self.inputs:
                raise ImpreciseError("an input without a value")
            return [_widened(self.inputs[node.attribute("name")])]
        if node.value is not None:
            kind = node.types[0]
            if kind is None or not is_numpy(kind.dtype):
                raise ImpreciseError("a constant of a type that NumPy lacks")
            return [_widened(node.value)]
        if bodies.has_bodies(node):
            return self._controlled(node)
        arrays = [self._at(ref) for ref in node.inputs if ref is not None]
        outputs = self.precise.computed(number, arrays, self.sizes)
        # What a Cast makes of a number that it cannot hold is no number of the model's meaning.
        return [_widened(array) for array in outputs]

    def _controlled(self, node: Node) -> Values:
        """Evaluate an If; a Loop and a Scan are not evaluated."""
        control = bodies.control_of(node)
        if node.attribute("operator") != "If" or control.inputs[0] is None:
            raise ImpreciseError(f"{node.attribute('operator')} is not evaluated")
        is_true = bool(self._at(control.inputs[0]).reshape(-1)[0])
        attributes = onnx.NodeProto.FromString(node.attribute("node")).attribute
        names = [attribute.name for attribute in attributes]
        body = control.bodies[names.index("then_branch" if is_true else "else_branch")]
        nodes = self.precise.graph.nodes
        needed = {number: nodes[number] for number in ordered(nodes, body.outputs, _needed)}
        bound = {number: self._at(ref) for number, ref in captured(needed, body)}
        return _Frame(self.precise, body.outputs, self.inputs, bound, self.until_s).run()

    def _note_sizes(self, node: Node, values: Values) -> None:
        """Note which numbers the names of sizes stand for."""
        for kind, array in zip(node.types, values, strict=False):
            shape = (kind.shape if kind is not None else None) or ()
            if len(shape) == array.ndim:
                for size, number in zip(shape, array.shape, strict=True):
                    if isinstance(size, str) and dimensions.is_name(size):
                        self.sizes.setdefault(size, number)


def captured(nodes: Mapping[int, Node], body: bodies.Body) -> Iterator[tuple[int, Ref]]:
    """Yield the inputs of a body that stand for outer values, with these."""
    for number, node in nodes.items():
        if bodies.body_of(node) == body.name:
            outer = body.captured_at(node.attribute("place"))
            if outer is not None:
                yield number, outer


def _needed(node: Node) -> list[int]:
    """Return the nodes that must be evaluated before a node, each once; not those in its bodies."""
    if not bodies.has_bodies(node):
        return node.used
    control = bodies.control_of(node)
    outer = [ref for body in control.bodies for ref in body.captured]
    return list(dict.fromkeys(ref.node for ref in (*control.inputs, *outer) if ref is not None))


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _concrete(attributes: Attributes, sizes: Mapping[str, int]) -> Attributes:
    """Return attributes in which names of sizes are replaced by their numbers."""
    return tuple(
        (
            name,
            tuple(
                dimensions.value(size, sizes) if isinstance(size, str) else size for size in value
            ),
        )
        if isinstance(value, tuple)
        else (name, value)
        for name, value in attributes
    )


def _in_onnxruntime(model: onnx.ModelProto) -> Callable[[Arrays], Sequence[Any]]:
    program = remote.isolated("onnxruntime-disable").open(model)
    return lambda inputs: list(program.run(inputs).values())


def _outputs(
    run: Callable[[Arrays], Sequence[Any]],
    model: onnx.ModelProto,
    dtypes: Sequence[str],
    arrays: Values,
) -> Values:
    """Run a model on the arrays in these types."""
    values = run(
        {
            value.name: array.astype(dtype, copy=False)
            for value, array, dtype in zip(model.graph.input, arrays, dtypes, strict=True)
        }
    )
    if not all(isinstance(value, np.ndarray) for value in values):
        raise ImpreciseError("an output that is no tensor")
    return list(values)
