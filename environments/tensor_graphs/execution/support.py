"""Which operators onnxruntime runs, for which types.

Its CPU provider lacks kernels that ONNX's definition promises, for example a Gemm of integers. A
rewrite that makes such a node gives a model that does not load.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence

import onnx

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.onnx_io.tensors import NUMBERS
from environments.tensor_graphs.operators import contrib

# An operator is expanded to others where it has no kernel of its own.
_ONNX_NAMES = {"float32": "float", "float64": "double"}
_EXPANDED = ("has_function", "has_context_dependent_function")

_Kernel = tuple[int, int, Mapping[str, frozenset[str]]]
"""First and last opset, and the types for each of the operator's type parameters."""


def is_supported(op: str, inputs: Sequence[TensorType | None], opset: int) -> bool:
    """Return whether onnxruntime runs an operator on the CPU; True if that is not known.

    The types of inputs are None where one is left out or is no tensor.
    """
    return _is_supported(op, tuple(kind.dtype if kind else "" for kind in inputs), opset)


@functools.lru_cache(maxsize=1 << 12)
def _is_supported(op: str, dtypes: tuple[str, ...], opset: int) -> bool:
    if op in contrib.FORMS:
        name = contrib.FORMS[op].op
        wanted_types = [f"tensor({_ONNX_NAMES.get(dtype, dtype)})" for dtype in dtypes if dtype]
        return any(
            all(kind in types.get("T", ()) for kind in wanted_types)
            for _, _, types in _kernels(contrib.DOMAIN).get(name, ())
        )
    kernels = _kernels().get(op)
    if not kernels or not opset:
        return True
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return True
    if any(getattr(schema, flag, False) for flag in _EXPANDED):
        return True
    wanted: dict[str, frozenset[str]] = {}
    for place, dtype in enumerate(dtypes):
        if dtype and schema.inputs:
            parameter = schema.inputs[min(place, len(schema.inputs) - 1)]
            wanted[parameter.type_str] = _onnx_types(dtype)
    return any(
        first <= schema.since_version <= last
        and all(types[name] & any_of for name, any_of in wanted.items() if name in types)
        for first, last, types in kernels
    )


def _onnx_types(dtype: str) -> frozenset[str]:
    """Return the types of kernels that take an element type."""
    name = onnx.TensorProto.DataType.Name(NUMBERS[dtype]).lower()
    # onnxruntime converts float16 to float32 where it lacks a kernel.
    return frozenset({f"tensor({name})"} | ({"tensor(float)"} if dtype == "float16" else set()))


@functools.cache
def _kernels(*domains: str) -> Mapping[str, list[_Kernel]]:
    """Return the kernels of domains, ONNX's own if none is named.

    There are none if this onnxruntime does not tell.
    """
    kernels: dict[str, list[_Kernel]] = collections.defaultdict(list)
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
    except ImportError:
        return kernels
    for kernel in get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain in (
            domains or ("", "ai.onnx")
        ):
            types = {name: frozenset(kinds) for name, kinds in kernel.type_constraints.items()}
            kernels[kernel.op_name].append((*kernel.version_range, types))
    return kernels
