"""Read TASO's rule file (graph_subst.pb) from its wire format.

The file is one protocol buffer. A message is a sequence of fields. A field is a varint, which holds
the field's number and the kind of its value, followed by the value. TASO writes these messages:

  RuleCollection  1 rule*
  Rule            1 operator* of the source, 2 operator* of the target, 3 pair of outputs*
  Operator        1 type, 2 input*, 3 parameter*
  Tensor          1 operator, 2 output; a negative operator is a variable of the rule
  Parameter       1 key, 2 value
  pair of outputs 1 operator in source, 2 in target, 3 output in source, 4 in target

All numbers are int32. Types and keys are TASO's enums, numbered below.

The numbers of fields are those of the descriptor in `src/core/rules.pb.cc` (commit 34d0138) of
https://github.com/jiazhihao/TASO. The numbers of types, keys, activations and paddings are the
places in the enums OpType, PMParameter, ActiMode and PaddingMode of `include/taso/ops.h` (commit
233aa55). `src/core/substitution.cc` (commit 09130d9) shows how a number encodes a permutation: its
digits in the base of the rank are the axes, the last axis last.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
from collections.abc import Iterator, Mapping

from environments import files
from environments.errors import UserError

_VARINT, _BYTES = 0, 2
_MAX_FILE_BYTES = 64 << 20


class TasoOperator(enum.IntEnum):
    """TASO's operators and their numbers."""

    INPUT = 0
    WEIGHT = 1
    ANY = 2
    CONV2D = 3
    DROPOUT = 4
    LINEAR = 5
    POOL2D_MAX = 6
    POOL2D_AVG = 7
    RELU = 8
    SIGMOID = 9
    TANH = 10
    BATCHNORM = 11
    CONCAT = 12
    SPLIT = 13
    RESHAPE = 14
    TRANSPOSE = 15
    EW_ADD = 16
    EW_MUL = 17
    MATMUL = 18
    MUL = 19
    ENLARGE = 20
    MERGE_GCONV = 21
    CONSTANT_IMM = 22
    CONSTANT_ICONV = 23
    CONSTANT_ONE = 24
    CONSTANT_POOL = 25
    SQUEEZE = 26
    UNSQUEEZE = 27
    EW_SUB = 28
    EW_DIV = 29
    EW_EQUAL = 30
    EW_GREATER = 31
    EW_LESS = 32
    EW_MAX = 33
    EW_MIN = 34
    REDUCE_ARGMAX = 35
    REDUCE_ARGMIN = 36
    REDUCE_MAX = 37
    REDUCE_MEAN = 38
    REDUCE_MIN = 39
    REDUCE_PROD = 40
    REDUCE_SUM = 41
    PAD = 42
    SHAPE = 43
    SIZE = 44
    TOPK = 45
    WHERE = 46
    CEIL = 47
    CAST = 48
    EXP = 49
    ROUND = 50
    LOG = 51
    LOGICAL_NOT = 52
    SQRT = 53
    LEAKYRELU = 54
    SLICE = 55
    RESIZE = 56
    PRELU = 57
    FUSE_CONV_BATCHNORM = 58
    FUSE_CONV_BATCHNORM_ALPHA_VAR = 59
    FUSE_CONV_BATCHNORM_BIAS = 60
    BROADCAST_ADD = 61


class TasoParameter(enum.IntEnum):
    """The parameters of TASO's operators and their numbers."""

    OP_TYPE = 0
    NUM_INPUTS = 1
    NUM_OUTPUTS = 2
    GROUP = 3
    KERNEL_H = 4
    KERNEL_W = 5
    STRIDE_H = 6
    STRIDE_W = 7
    PAD = 8
    ACTIVATION = 9
    NUM_DIMENSIONS = 10
    AXIS = 11
    PERMUTATION = 12
    OUT_SHUFFLE = 13
    MERGE_GCONV_COUNT = 14
    AXES = 15
    KEEP_DIMS = 16


@dataclasses.dataclass(frozen=True)
class TasoNode:
    """An operator of a rule.

    Attributes:
      type: number of the operator's type.
      inputs: pairs (index of an operator, its output); a negative index is a variable.
      parameters: values of the parameters by their keys.
    """

    type: int
    inputs: tuple[tuple[int, int], ...]
    parameters: Mapping[int, int]

    @property
    def name(self) -> str:
        """TASO's name of the operator, or its number."""
        known = self.type in TasoOperator.__members__.values()
        return TasoOperator(self.type).name if known else f"operator {self.type}"


@dataclasses.dataclass(frozen=True)
class TasoRule:
    """A rule in TASO's form.

    Attributes:
      source: operators of the source, each after its inputs.
      target: operators of the target, each after its inputs.
      outputs: which output replaces which: tuples (operator in source, operator in target, output
        in source, output in target).
    """

    source: tuple[TasoNode, ...]
    target: tuple[TasoNode, ...]
    outputs: tuple[tuple[int, int, int, int], ...]


class _WireError(ValueError):
    """The bytes are not the expected message."""


def read_taso_file(path: str | pathlib.Path) -> list[TasoRule]:
    """Read a rule file.

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
        rules = [_rule(message) for message in _messages(data, {1})[1]]
    except _WireError as error:
        raise UserError(f"{path} is not a TASO rule file: {error}; {remedy}") from error
    if not rules:
        raise UserError(f"{path} holds no rules; {remedy}")
    return rules


def _rule(data: bytes) -> TasoRule:
    parts = _messages(data, {1, 2, 3})
    outputs = [_numbers(part, 4) for part in parts[3]]
    return TasoRule(
        tuple(map(_node, parts[1])),
        tuple(map(_node, parts[2])),
        tuple((one[0], one[1], one[2], one[3]) for one in outputs),
    )


def _node(data: bytes) -> TasoNode:
    kinds: list[int] = []
    parts: dict[int, list[bytes]] = {2: [], 3: []}
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kinds.append(value)
        elif number in parts and isinstance(value, bytes):
            parts[number].append(value)
        else:
            raise _WireError(f"an operator with a field {number}")
    if not kinds:
        raise _WireError("an operator without a type")
    inputs = tuple((one[0], one[1]) for one in (_numbers(part, 2) for part in parts[2]))
    parameters = {one[0]: one[1] for one in (_numbers(part, 2) for part in parts[3])}
    return TasoNode(kinds[-1], inputs, parameters)


def _messages(data: bytes, numbers: set[int]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in numbers}
    for number, value in _fields(data):
        if number not in found or not isinstance(value, bytes):
            raise _WireError(f"an unexpected field {number}")
        found[number].append(value)
    return found


def _numbers(data: bytes, count: int) -> list[int]:
    """Return the values of a message whose fields are the numbers 1 to `count`, all integers."""
    found = dict(_fields(data))
    if sorted(found) != list(range(1, count + 1)):
        raise _WireError(f"expected fields 1 to {count}, found {sorted(found)}")
    values = [found[number] for number in sorted(found)]
    if not all(isinstance(value, int) for value in values):
        raise _WireError("expected numbers")
    return [value for value in values if isinstance(value, int)]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each of a message's fields."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise _WireError("a field without a number")
        if kind == _VARINT:
            unsigned, at = _varint(data, at)
            yield number, unsigned - (1 << 64) if unsigned >> 63 else unsigned
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise _WireError("it ends too soon")
            yield number, data[at : at + size]
            at += size
        else:
            raise _WireError(f"a field of an unexpected kind ({kind})")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _WireError("it ends too soon")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise _WireError("a number without end")
