"""Read an ONNX model into a graph: node by node, each in its canonical form or as Opaque.

The nodes of the bodies inside a node go into the same graph.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Attributes, Ref, TensorType
from environments.tensor_graphs.onnx_io import bodies, scopes
from environments.tensor_graphs.onnx_io.bodies import Types, UnreadableBodyError
from environments.tensor_graphs.onnx_io.header import ModelHeader, copy_field
from environments.tensor_graphs.onnx_io.opaque import opaque_attributes
from environments.tensor_graphs.onnx_io.reading import loading
from environments.tensor_graphs.onnx_io.reading.canonical import add_canonical
from environments.tensor_graphs.onnx_io.reading.graph_builder import (
    GraphBuilder,
    NotCanonicalError,
    SourceNode,
    attribute_values,
    with_inputs,
)
from environments.tensor_graphs.onnx_io.reading.inference import infer_types, session_of
from environments.tensor_graphs.onnx_io.reading.opaque_values import (
    constants_of,
    may_be_equal,
    refined,
)
from environments.tensor_graphs.onnx_io.reading.shape_values import (
    INTEGERS,
    Sizes,
    are_known,
    compute,
)
from environments.tensor_graphs.onnx_io.reading.wiring import Wiring
from environments.tensor_graphs.onnx_io.tensors import DataPlace
from environments.tensor_graphs.operators import contrib

_SCAN_WITHOUT_BATCH = 9
"""The opset since which Scan means what `bodies` says."""


def read(
    source: loading.Source,
    shapes: Mapping[str, Sequence[int]] | None = None,
    learned: Sequence[onnx.ValueInfoProto] = (),
) -> Graph:
    """Read a model into a graph.

    Operators of `operators.table.OPERATORS` get their canonical form; all others become Opaque
    nodes, which are written as they were. Dropout and Identity are left out. Shapes that the model
    computes are replaced by their values as far as these are known. The bodies of If, Loop and Scan
    become part of the graph (`bodies`). Its `header` keeps all the rest but training information.

    Args:
      source: a path, the content of a file, or a model. External data are found only with a path.
      shapes: shapes that inputs have from now on, by name, in the graph and in models written from
        it. What follows from them is folded. Without this, what is folded holds for all sizes that
        the file leaves open.
      learned: types of values that onnx and onnxruntime cannot infer, as runs have shown them.

    Raises:
      UserError: the source is not an ONNX model, or is damaged; or neither onnx nor onnxruntime
        takes it for valid; or an input cannot have the shape that `shapes` gives it.
    """
    model, place = loading.load(source)
    if shapes:
        model = loading.frozen(model, shapes)
    try:
        loading.check_versions(model, loading.name_of(source))
        return _graph_of(model, place, learned, is_strict=True)
    except UserError:
        is_file = isinstance(source, str | pathlib.Path) and not shapes
        if session_of(pathlib.Path(source) if is_file else model) is None:  # type: ignore[arg-type]
            raise
    return _graph_of(model, place, learned, is_strict=False)


def _graph_of(
    model: onnx.ModelProto,
    place: DataPlace | None,
    learned: Sequence[onnx.ValueInfoProto],
    is_strict: bool,
) -> Graph:
    wiring, builder = Wiring(model, place), GraphBuilder(model, place, is_strict)
    edit, names = builder.edit, builder.names
    # First, so that the sizes of inputs have the same names whatever is known of other values.
    input_types = [names.type_of(info.type) for info in wiring.inputs]
    reader = _NodeReader(builder, wiring, infer_types(model, wiring, names, is_strict, learned))
    for info, input_type in zip(wiring.inputs, input_types, strict=True):
        attributes = (("name", info.name),)
        reader.name(edit.add(INPUT, [], attributes, [input_type]), info.name)
    reader.read()
    outputs = [output.name for output in model.graph.output]
    edit.set_outputs([reader.values[name] for name in outputs], outputs)
    graph, _ = edit.finish()
    graph.header = _header(builder, wiring)
    return graph


def _header(builder: GraphBuilder, wiring: Wiring) -> ModelHeader:
    shell = onnx.ModelProto()
    graph = builder.model.graph
    for field, value in builder.model.ListFields():
        # What trains the model speaks of weights and values that a rewritten one may not have.
        if field.name not in ("graph", "training_info"):
            copy_field(shell, field.name, value)
    left_out = ("node", "initializer", "sparse_initializer", "value_info", "input")
    for field, value in graph.ListFields():
        if field.name not in left_out:
            copy_field(shell.graph, field.name, value)
    shell.graph.input.extend(wiring.inputs)
    return ModelHeader(
        shell,
        builder.value_names,
        builder.nodes,
        frozenset(info.name for info in graph.value_info),
        wiring.defaults,
        builder.names.original,
    )


class _NodeReader:
    """Reads the nodes of a model or of a body.

    Attributes:
      values: the values that have been read, by the file's names.
    """

    def __init__(self, builder: GraphBuilder, wiring: Wiring, types: Types) -> None:
        self._builder, self._wiring, self._types = builder, wiring, types
        self._edit = builder.edit
        self.values: dict[str, Ref] = {}

    def read(self) -> None:
        """Add the constants and all nodes to the graph; the inputs must be in `values`."""
        for name in self._wiring.constants:
            if self._wiring.num_uses[name] and name not in self.values:
                self.name(self._edit.add_constant(*self._wiring.constants[name]), name)
        for node in self._wiring.nodes:
            self._read_node(node)

    def name(self, ref: Ref, name: str) -> None:
        """Give a value its name in the file."""
        self.values[name] = ref
        self._builder.value_names.setdefault(ref, name)

    def _refs(self, names: Iterable[str]) -> list[Ref | None]:
        return [self.values[name] if name else None for name in names]

    def _read_node(self, node: onnx.NodeProto) -> None:
        if not self._is_known(node):
            self._read_opaque(node)
            return
        if node.op_type in bodies.OPERATORS and self._read_control(node):
            return
        used = [k for k, name in enumerate(node.output, 1) if name and self._wiring.num_uses[name]]
        source = SourceNode(
            node.domain,
            node.op_type,
            tuple(self._refs(_trimmed(node.input))),
            attribute_values(node),
            max(used, default=0),
            tuple(node.output),
        )
        if node.domain == contrib.DOMAIN:
            if not self._read_canonical(node, source):
                self._read_opaque(node)
            return
        source = with_inputs(self._builder, source)
        sizes = self._sizes(source)
        output = self._types.get(node.output[0])
        if sizes is not None and output is not None and are_known(sizes):
            value = np.array(sizes.tolist(), output.dtype)
            self.name(self._edit.add_constant(value), node.output[0])
            return
        if not self._read_canonical(node, source) and not self._read_constant(node):
            self._read_opaque(node, refined(self._builder, source, output))
        if sizes is not None:
            self._builder.set_sizes(self.values[node.output[0]], sizes)

    def _is_known(self, node: onnx.NodeProto) -> bool:
        """Return whether a node has a known operator, with attributes that have values."""
        is_own = node.domain in ("", "ai.onnx") and self._builder.knows(node.op_type)
        is_own |= node.domain == contrib.DOMAIN and any(
            form.op == node.op_type for form in contrib.FORMS.values()
        )
        if not is_own or (node.domain, node.op_type) in self._builder.functions:
            return False
        # Outside of functions, onnxruntime ignores what refers to a function's attribute.
        return bool(node.output) and not any(
            attribute.ref_attr_name for attribute in node.attribute
        )

    def _read_canonical(self, node: onnx.NodeProto, source: SourceNode) -> bool:
        """Add a node in its canonical form; return whether it has one."""
        try:
            outputs = add_canonical(self._builder, source)
        except NotCanonicalError:
            return False
        pairs = [(ref, name) for ref, name in zip(outputs, node.output, strict=False) if name]
        if not all(ref in source.inputs or self._agree(ref, name) for ref, name in pairs):
            return False
        for ref, name in pairs:
            self.name(ref, name)
        self._builder.nodes.setdefault(outputs[0].node, _about(node))
        return True

    def _read_constant(self, node: onnx.NodeProto) -> bool:
        """Read what a node gives as constants; return whether it depends on constants alone."""
        arrays = constants_of(self._builder, node, self._refs(node.input), self._types)
        for name, array in (arrays or {}).items():
            self.name(self._edit.add_constant(array), name)
        return arrays is not None

    def _sizes(self, node: SourceNode) -> Sizes | None:
        """Compute the value of a node that computes with sizes; None if that is not possible."""
        types = [None if ref is None else self._edit.type_of(ref) for ref in node.inputs]
        output = self._types.get(node.output_names[0])
        if output is None or output.dtype not in INTEGERS:
            return None
        if node.op not in ("Shape", "Size") and not all(
            kind is not None and kind.dtype in INTEGERS for kind in types
        ):
            return None
        inputs = [self._builder.sizes_of(ref) for ref in node.inputs]
        sizes = compute(node.op, inputs, types, node.attributes)
        largest = np.iinfo(np.int32 if output.dtype == "int32" else np.int64).max
        numbers = [] if sizes is None else [size for size in sizes.flat if isinstance(size, int)]
        return sizes if all(abs(number) <= largest for number in numbers) else None

    def _agree(self, ref: Ref, name: str) -> bool:
        """Return whether onnx inferred the same type for a value, as far as both types are known.

        The answer is no for values without elements, for which operators have special meanings.
        """
        ours, inferred = self._edit.type_of(ref), self._types.get(name)
        if ours is None or inferred is None:
            return True
        if ours.shape is None or 0 in ours.shape or ours.dtype != inferred.dtype:
            return False
        return inferred.shape is None or may_be_equal(ours.shape, inferred.shape)

    def _read_opaque(self, node: onnx.NodeProto, first: TensorType | None = None) -> None:
        """Add a node as it is in the file; `first` is the type of its first output, if known."""
        captured = scopes.captured(node)
        names = (*_trimmed(node.input), *captured)
        inputs = self._refs(names)
        number = next(self._builder.numbers)
        attributes = opaque_attributes(node, captured, self._builder.functions, number)
        self._add_opaque(node, inputs, attributes, first)

    def _add_opaque(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Ref | None],
        attributes: Attributes,
        first: TensorType | None = None,
    ) -> None:
        types = [self._types.get(name) for name in node.output]
        if first is not None:
            types[0] = first
        number = self._edit.add(OPAQUE, inputs, attributes, types).node
        for output, name in enumerate(node.output):
            if name:
                self.name(Ref(number, output), name)
        self._builder.nodes.setdefault(number, _about(node))

    def _read_control(self, node: onnx.NodeProto) -> bool:
        """Read a node and its bodies; return whether its bodies can be read as graphs."""
        if node.op_type == "Scan" and self._builder.opset < _SCAN_WITHOUT_BATCH:
            return False
        own = self._refs(_trimmed(node.input))
        if self._read_branch(node, own):
            return True
        number = next(self._builder.numbers)
        names, captured, returned = [], [], []
        try:
            for place, body in enumerate(scopes.subgraphs(node)):
                names.append(f"{node.op_type}{number}.{place}")
                ends = self._read_body(node, body, names[-1], own)
                captured.append(ends[0])
                returned.append(ends[1])
        except (UnreadableBodyError, UserError):
            return False
        inputs = [*own, *itertools.chain(*captured), *itertools.chain(*returned)]
        counts = [len(refs) for refs in captured]
        attributes = bodies.control_attributes(node, names, counts, self._builder.functions)
        self._add_opaque(node, inputs, attributes)
        return True

    def _read_branch(self, node: onnx.NodeProto, own: Sequence[Ref | None]) -> bool:
        """Read the branch that an If always takes in its place; return whether that is known."""
        chosen = self._builder.sizes_of(own[0]) if node.op_type == "If" else None
        if chosen is None or not are_known(chosen):
            return False
        wanted = "then_branch" if chosen.item() else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        outer = {name: self.values[name] for name in scopes.captured_by(branch)}
        try:
            _, wiring, types = self._typed(node, branch, [], outer)
            inner = _NodeReader(self._builder, wiring, types)
            inner.values.update(outer)
            inner.read()
        except (UnreadableBodyError, UserError):
            return False
        for output, name in zip(branch.output, node.output, strict=True):
            if name:
                self.name(inner.values[output.name], name)
        return True

    def _read_body(
        self, node: onnx.NodeProto, body: onnx.GraphProto, name: str, own: Sequence[Ref | None]
    ) -> tuple[list[Ref], list[Ref]]:
        """Read a body; return the outer values that it captures, and the values that it returns."""
        outer = {outer_name: self.values[outer_name] for outer_name in scopes.captured_by(body)}
        constants = {
            outer_name for outer_name, ref in outer.items() if self._edit.is_constant(ref.node)
        }
        formal, wiring, types = self._typed(node, body, own, outer)
        inner = _NodeReader(self._builder, wiring, types)
        captured = [outer_name for outer_name in outer if outer_name not in constants]
        named: list[tuple[str, TensorType | None]] = [
            (info.name, self._builder.names.opened(kind))
            for info, kind in zip(body.input, formal, strict=True)
        ]
        named += [(outer_name, self._edit.type_of(outer[outer_name])) for outer_name in captured]
        for place, (given_name, kind) in enumerate(named):
            ref = self._edit.add(INPUT, [], bodies.input_attributes(name, place), [kind])
            inner.name(ref, given_name)
            sizes = self._builder.sizes_of(outer.get(given_name))
            if sizes is not None:
                self._builder.set_sizes(ref, sizes)
        inner.values.update((outer_name, outer[outer_name]) for outer_name in constants)
        inner.read()
        return [outer[end] for end in captured], [inner.values[end.name] for end in body.output]

    def _typed(
        self,
        node: onnx.NodeProto,
        body: onnx.GraphProto,
        own: Sequence[Ref | None],
        outer: Mapping[str, Ref],
    ) -> tuple[list[TensorType], Wiring, Types]:
        """Return the types of a body's own inputs, its wiring, and the types of its values."""
        builder = self._builder
        passed = [None if ref is None else self._edit.type_of(ref) for ref in own]
        captured = {name: self._edit.type_of(ref) for name, ref in outer.items()}
        values = {name: self._builder.value_of(ref) for name, ref in outer.items()}
        constants = {name: value for name, value in values.items() if value is not None}
        formal = bodies.formal_types(node, body, passed)
        while True:
            dimensions = builder.names.original
            model = bodies.body_model(builder.model, body, formal, captured, constants, dimensions)
            wiring = Wiring(model, builder.place)
            types = infer_types(model, wiring, builder.names, builder.is_strict)
            before = list(formal)
            for entry, end in bodies.states(node, body):
                after = types.get(body.output[end].name)
                formal[entry] = bodies.steady(formal[entry], after)
            if formal == before:
                return formal, wiring, types


def _trimmed(names: Sequence[str]) -> Sequence[str]:
    """Drop empty names, which stand for inputs that are left out, from the end."""
    count = len(names)
    while count and not names[count - 1]:
        count -= 1
    return names[:count]


def _about(node: onnx.NodeProto) -> onnx.NodeProto:
    """Copy a node's name, documentation and metadata."""
    about = onnx.NodeProto()
    for field, value in node.ListFields():
        if field.name in ("name", "doc_string", "metadata_props"):
            copy_field(about, field.name, value)
    return about
