"""Read TASO's rule file (graph_subst.pb), a protocol buffer.

All numbers of its messages, which `_FIELDS` lists, are int32. A tensor is an output of an operator;
a negative operator is a variable of the rule. Types and keys are the places in TASO's enums, listed
below.

The numbers of fields are those of the descriptor in `src/core/rules.pb.cc` (commit 34d0138) of
https://github.com/jiazhihao/TASO. The numbers of types, keys, activations and paddings are the
places in the enums OpType, PMParameter, ActiMode and PaddingMode of `include/taso/ops.h` (commit
233aa55). `src/core/substitution.cc` (commit 09130d9) shows how a number encodes a permutation: its
digits in the base of the rank are the axes, the last axis last.
"""

from __future__ import annotations

import enum
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from environments import files
from environments.errors import UserError

_MAX_FILE_BYTES = 64 << 20

_FIELDS = {
    "RuleCollection": {"rule": "Rule"},
    "Rule": {"source": "Operator", "target": "Operator", "outputs": "Outputs"},
    "Operator": {"type": "", "inputs": "Tensor", "parameters": "Parameter"},
    "Tensor": {"operator": "", "output": ""},
    "Parameter": {"key": "", "value": ""},
    "Outputs": {"source": "", "target": "", "source_output": "", "target_output": ""},
}
"""The messages: for each field, numbered from 1, the message that it repeats; "" for a number."""

TasoOperator = enum.IntEnum(
    "TasoOperator",
    """
    INPUT WEIGHT ANY CONV2D DROPOUT LINEAR POOL2D_MAX POOL2D_AVG RELU SIGMOID TANH BATCHNORM CONCAT
    SPLIT RESHAPE TRANSPOSE EW_ADD EW_MUL MATMUL MUL ENLARGE MERGE_GCONV CONSTANT_IMM CONSTANT_ICONV
    CONSTANT_ONE CONSTANT_POOL SQUEEZE UNSQUEEZE EW_SUB EW_DIV EW_EQUAL EW_GREATER EW_LESS EW_MAX
    EW_MIN REDUCE_ARGMAX REDUCE_ARGMIN REDUCE_MAX REDUCE_MEAN REDUCE_MIN REDUCE_PROD REDUCE_SUM PAD
    SHAPE SIZE TOPK WHERE CEIL CAST EXP ROUND LOG LOGICAL_NOT SQRT LEAKYRELU SLICE RESIZE PRELU
    FUSE_CONV_BATCHNORM FUSE_CONV_BATCHNORM_ALPHA_VAR FUSE_CONV_BATCHNORM_BIAS BROADCAST_ADD
    """,
    start=0,
)
"""TASO's operators and their numbers."""

TasoParameter = enum.IntEnum(
    "TasoParameter",
    """
    OP_TYPE NUM_INPUTS NUM_OUTPUTS GROUP KERNEL_H KERNEL_W STRIDE_H STRIDE_W PAD ACTIVATION
    NUM_DIMENSIONS AXIS PERMUTATION OUT_SHUFFLE MERGE_GCONV_COUNT AXES KEEP_DIMS
    """,
    start=0,
)
"""The parameters of TASO's operators and their numbers."""


def read_taso_file(path: str | pathlib.Path) -> Sequence[Any]:
    """Return the messages of a file's rules.

    Raises:
      UserError: the file cannot be read, or is not a TASO rule file.
    """
    path = pathlib.Path(path)
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    remedy = "expected TASO's graph_subst.pb"
    if len(data) > _MAX_FILE_BYTES:
        raise UserError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB; {remedy}")
    try:
        rules = _parsed(data).rule
    except (message.DecodeError, ValueError) as error:
        raise UserError(f"{path} is not a TASO rule file: {error}; {remedy}") from error
    if not rules:
        raise UserError(f"{path} holds no rules; {remedy}")
    return rules


def _parsed(data: bytes) -> Any:
    """Return the message of a file.

    Raises:
      ValueError: it lacks fields, or has others; as bytes of another format mostly do.
    """
    collection = message_type("RuleCollection")()
    collection.ParseFromString(data)
    if not collection.IsInitialized():
        raise ValueError(f"it lacks {', '.join(collection.FindInitializationErrors()[:3])}")
    # A value of another kind than expected counts as unknown; so most other files are refused here.
    size_bytes = collection.ByteSize()
    collection.DiscardUnknownFields()
    if collection.ByteSize() != size_bytes:
        raise ValueError("it has unexpected fields")
    return collection


@functools.cache
def message_type(message_name: str) -> Any:
    """Return the class of one of the messages."""
    file = descriptor_pb2.FileDescriptorProto(name="taso.proto", package="taso", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        added = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            added.field.add(
                name=field,
                number=number,
                type=kinds.TYPE_MESSAGE if kind else kinds.TYPE_INT32,
                type_name=f".taso.{kind}" if kind else None,
                label=kinds.LABEL_REPEATED if kind else kinds.LABEL_REQUIRED,
            )
    # A pool of its own, since another library may hold TASO's messages under its own names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"taso.{message_name}"))
