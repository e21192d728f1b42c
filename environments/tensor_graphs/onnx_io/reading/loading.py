"""Load a model: parse the file, embed the tensors of its nodes, and inline its functions."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.inliner

from environments import files
from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import opset_of, opset_versions
from environments.tensor_graphs.onnx_io.reading.graph_builder import OLDEST_OPSET
from environments.tensor_graphs.onnx_io.tensors import (
    DataPlace,
    dtype_of,
    external_path,
    raw_bytes,
    to_array,
)

_WITH_OPERATORS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc")
"""The domains in which onnxruntime has operators."""

Source = str | pathlib.Path | bytes | onnx.ModelProto
"""A path, the content of a file, or a model."""


def load(source: Source) -> tuple[onnx.ModelProto, DataPlace | None]:
    """Load a model and inline its own functions; return it, and where files with its data may be.

    That place is None unless `source` is a path.

    Raises:
      UserError: the source is not a model, or the model is incomplete.
    """
    name, place = name_of(source), None
    if isinstance(source, onnx.ModelProto):
        model = source
    else:
        content = source
        if not isinstance(content, bytes):
            path = pathlib.Path(content)
            content, place = _content(path), DataPlace.of(path)
        model = _parsed(content, name)
    if not model.ir_version or not model.opset_import:
        raise UserError(f"{name}: not an ONNX model, or only a part of one: it names no opset")
    model = _with_plain_opsets(model)
    _embed_in_nodes(model, place)
    if called := _recursive(model):
        raise UserError(f"{name}: a damaged ONNX model: its function {called!r} calls itself")
    return (_inlined(model) if model.functions else model), place


def file_names(path: pathlib.Path) -> tuple[str, ...]:
    """Return the names of a model's own file and of those with its data, relative to its directory.

    Raises:
      UserError: the file is not a model, or a file with data is missing or outside of the model's
        directory.
    """
    model = parsed(path)
    paths = {
        external_path(tensor, DataPlace.of(path))
        for tensor in scopes.model_tensors(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    root = path.parent.resolve()
    return (path.name, *sorted(str(data.relative_to(root)) for data in paths))


def parsed(path: pathlib.Path) -> onnx.ModelProto:
    """Parse a model's own file; the data in other files stay there.

    Raises:
      UserError: the file is not a model.
    """
    return _parsed(_content(path), str(path))


def frozen(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Return a model whose inputs have fixed shapes.

    Raises:
      UserError: there is no such input, or the model gives it another rank or size.
    """
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    inputs = {info.name: info for info in fixed.graph.input}
    for name, shape in shapes.items():
        if name not in inputs or not inputs[name].type.HasField("tensor_type"):
            tensors = ", ".join(inputs)
            raise UserError(f"expected shapes of tensors among {tensors}; found {name}")
        declared = inputs[name].type.tensor_type.shape
        own = [size.dim_value if size.dim_value > 0 else None for size in declared.dim]
        is_open = not inputs[name].type.tensor_type.HasField("shape")
        fits = is_open or len(own) == len(shape)
        if not fits or any(a not in (None, b) for a, b in zip(own, shape, strict=False)):
            raise UserError(
                f"input {name!r}: expected a shape that fits {[size or '?' for size in own]}, "
                f"found {list(shape)}; give each open size a number"
            )
        del declared.dim[:]
        declared.SetInParent()
        for size in shape:
            declared.dim.add(dim_value=size)
    return fixed


def name_of(source: Source) -> str:
    """Return what messages call a source: its path, or "the model"."""
    return "the model" if isinstance(source, bytes | onnx.ModelProto) else str(source)


def _recursive(model: onnx.ModelProto) -> str:
    """Return the name of a function that calls itself through others; "" if none does.

    onnx would inline it until the stack overflows, which ends the process.
    """
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    calls = {
        key: {called for node in nodes for called in scopes.operators(node)} & bodies.keys()
        for key, nodes in bodies.items()
        if len(bodies) == len(model.functions)  # Overloads may call each other.
    }
    # Whoever calls only what is done is done; what never is, is on a cycle or leads to one.
    while done := [key for key, called in calls.items() if not called & calls.keys()]:
        for key in done:
            del calls[key]
    return next((name for _, name in calls), "")


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose own functions stand where they are called, as onnxruntime runs them.

    Where onnxruntime has an operator of a function's name, it runs that, so those functions stay.
    If onnx cannot inline the others, the model itself is returned.
    """
    kept_functions = [
        (function.domain, function.name)
        for function in model.functions
        if function.domain in _WITH_OPERATORS
    ]
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    # The weights may be larger than what onnx can pass to its inliner.
    shell.graph.ClearField("initializer")
    shell.graph.ClearField("sparse_initializer")
    try:
        inlined = onnx.inliner.inline_selected_functions(shell, kept_functions, exclude=True)
    except Exception:
        return model
    inlined.graph.initializer.extend(model.graph.initializer)
    inlined.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    return inlined


def _with_plain_opsets(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that names each domain of operators once, and ONNX's own one as ""."""
    versions = opset_versions(model)
    if list(versions) == [opset.domain for opset in model.opset_import]:
        return model
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.opset_import[:]
    for domain, version in versions.items():
        plain.opset_import.add(domain=domain, version=version)
    return plain


def _embed_in_nodes(model: onnx.ModelProto, place: DataPlace | None) -> None:
    """Move the data of tensors in nodes and their subgraphs from other files into the model.

    Raises:
      UserError: a file with data is missing or outside of the model's directory.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for tensor in (tensor for node in nodes for tensor in scopes.tensors(node)):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                tensor.raw_data = raw_bytes(to_array(tensor, place), dtype_of(tensor))
                tensor.ClearField("external_data")
                tensor.data_location = onnx.TensorProto.DEFAULT


def _content(path: pathlib.Path) -> bytes:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: expected an ONNX file, found a directory") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _parsed(content: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # DecodeError, whose module differs between versions of protobuf
        raise UserError(
            f"{name}: not an ONNX model, or only a part of one ({len(content)} bytes); was it "
            "copied or downloaded completely?"
        ) from None
    if _has_broken_text(model):
        raise UserError(f"{name}: a damaged ONNX model: a name in it is no text")
    if not model.ir_version or not model.HasField("graph"):
        raise UserError(
            f"{name}: not an ONNX model, or only a part of one: it has no graph ({len(content)} "
            "bytes)"
        )
    return model


def _has_broken_text(message: Any) -> bool:
    """Return whether a text field is not UTF-8; protobuf then returns bytes or raises an error."""
    try:
        for field, value in message.ListFields():
            is_one = isinstance(value, str | bytes) or not hasattr(value, "__len__")
            values = [value] if is_one else value
            if field.type == field.TYPE_MESSAGE:
                if any(_has_broken_text(value) for value in values):
                    return True
            elif field.type == field.TYPE_STRING and not all(isinstance(v, str) for v in values):
                return True
    except UnicodeDecodeError:
        return True
    return False


def check_versions(model: onnx.ModelProto, name: str) -> None:
    """Check that onnx knows the versions of a model's format and of ONNX's operators.

    Raises:
      UserError: a version is too new, or too old.
    """
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if model.ir_version > onnx.IR_VERSION or opset > newest:
        raise UserError(
            f"{name}: opset {opset} and format {model.ir_version} are newer than the installed "
            f"onnx {onnx.__version__} knows (opset {newest}, format {onnx.IR_VERSION}); install a "
            "newer onnx, or export the model for an older opset"
        )
    if opset and opset < OLDEST_OPSET:
        raise UserError(
            f"{name}: opset {opset} is older than the oldest that is understood, "
            f"{OLDEST_OPSET}; export the model again"
        )
