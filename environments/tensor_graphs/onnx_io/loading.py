"""Models from files, as far as they can be understood without their nodes."""

from __future__ import annotations

import pathlib

import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import opset_of
from environments.tensor_graphs.onnx_io.tensors import dtype_of, raw_bytes, to_array

OLDEST_OPSET = 13
"""Older models are converted to this version of ONNX's operators."""

OLDEST_CONVERTIBLE_OPSET = 7

Source = str | pathlib.Path | bytes | onnx.ModelProto


def load(source: Source) -> tuple[onnx.ModelProto, pathlib.Path | None]:
    """Reads a model of a version that is understood.

    Args:
      source: a file, its content, or a model; a model is not changed.

    Returns:
      The model, whose initialisers may still be in other files, and the directory of those.

    Raises:
      UserError: it is no model, incomplete, or too old or new.
    """
    name, directory = "the model", None
    if isinstance(source, onnx.ModelProto):
        model = source
    else:
        content = source
        if not isinstance(content, bytes):
            name, directory = str(source), pathlib.Path(content).parent
            content = _content(pathlib.Path(content))
        model = _parsed(content, name)
    _check_versions(model, name)
    if model.training_info:
        raise UserError(
            f"{name}: expected a model for inference, found one with training information; export "
            "it for inference"
        )
    _embed_in_nodes(model, directory)
    if opset_of(model) < OLDEST_OPSET:
        model = _converted(model, directory, name)
    return model, directory


def _embed_in_nodes(model: onnx.ModelProto, directory: pathlib.Path | None) -> None:
    """Brings the tensors in attributes and subgraphs of nodes into the nodes, in place.

    Raises:
      UserError: a file is missing or outside of the model's directory.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            for tensor in scopes.tensors(node):
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    _embed(tensor, directory)


def _embed(tensor: onnx.TensorProto, directory: pathlib.Path | None) -> None:
    array = to_array(tensor, directory)
    tensor.raw_data = raw_bytes(array, dtype_of(tensor))
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.DEFAULT


def _content(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
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
    except Exception:  # DecodeError, which is in another place in each generation of protobuf
        raise UserError(
            f"{name}: not an ONNX model, or only a part of one ({len(content)} bytes); was it "
            "copied or downloaded completely?"
        ) from None
    if not model.ir_version or not model.HasField("graph"):
        raise UserError(
            f"{name}: not an ONNX model, or only a part of one: it has no graph ({len(content)} "
            "bytes)"
        )
    return model


def _check_versions(model: onnx.ModelProto, name: str) -> None:
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if not model.ir_version or not model.opset_import:
        raise UserError(f"{name}: not an ONNX model, or only a part of one: it names no opset")
    if model.ir_version > onnx.IR_VERSION or opset > newest:
        raise UserError(
            f"{name}: opset {opset} and format {model.ir_version} are newer than the installed "
            f"onnx {onnx.__version__} knows (opset {newest}, format {onnx.IR_VERSION}); install a "
            "newer onnx, or export the model for an older opset"
        )
    if opset and opset < OLDEST_CONVERTIBLE_OPSET:
        raise UserError(
            f"{name}: opset {opset} is older than the oldest that is understood, "
            f"{OLDEST_CONVERTIBLE_OPSET}; export the model again, for opset {OLDEST_OPSET} or newer"
        )


def _converted(
    model: onnx.ModelProto, directory: pathlib.Path | None, name: str
) -> onnx.ModelProto:
    """The model in the oldest version of ONNX's operators that is understood here."""
    opset = opset_of(model)
    reason = _obstacle(model, opset)
    if reason:
        raise _not_convertible(name, opset, reason)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if opset == 0:
        # It has only operators of other domains, whose meaning stays as it is.
        copy.opset_import.add(domain="", version=OLDEST_OPSET)
        return copy
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _embed(tensor, directory)
    try:
        converted = onnx.version_converter.convert_version(copy, OLDEST_OPSET)
    except Exception as error:
        raise _not_convertible(name, opset, " ".join(str(error).split())[:200]) from None
    # The converter knows only types of tensors.
    graph, original = converted.graph, model.graph
    for infos, known in ((graph.input, original.input), (graph.output, original.output)):
        types = {one.name: one.type for one in known}
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
    return converted


def _obstacle(model: onnx.ModelProto, opset: int) -> str:
    """Why the converter would not do; "" where it does."""
    if opset and model.functions:
        return "it has functions of its own"
    names = {name for node in model.graph.node for _, name in scopes.operators(node)}
    if opset < 9 and "Scan" in names:
        return "Scan had another meaning then"
    return ""


def _not_convertible(name: str, opset: int, reason: str) -> UserError:
    return UserError(
        f"{name}: opset {opset} cannot be converted to {OLDEST_OPSET} ({reason}); export the model "
        f"again, for opset {OLDEST_OPSET} or newer"
    )
