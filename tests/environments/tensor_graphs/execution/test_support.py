"""What onnxruntime says that it runs, it runs; and rules make nothing else."""

from __future__ import annotations

import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.support import is_supported
from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.language.notation import op, rule
from tests.environments.tensor_graphs.execution.models import parsed


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("op", "count"), [("Gemm", 2), ("Sum", 2), ("Neg", 1), ("Mul", 2)])
def test_what_is_said_is_so(op, count, dtype, opset):
    """Each operator is opened; a type that ONNX itself does not allow is none that is asked for."""
    kind = {"float32": "float", "float64": "double"}.get(dtype, dtype) + "[2,2]"
    names = ["a", "b"][:count]
    inputs = ", ".join(f"{kind} {name}" for name in names)
    model = parsed(f"g ({inputs}) => ({kind} y) {{ y = {op}({', '.join(names)}) }}", opset)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:
        return
    try:
        backend("onnxruntime-disable").open(model)
        opens = True
    except UserError:
        opens = False
    assert is_supported(op, [TensorType(dtype, (2, 2))] * count, opset) == opens


def test_what_is_not_known_is_let_through():
    assert is_supported("NoSuchOperator", [TensorType("float32", ())], 17)
    assert is_supported("Gemm", [TensorType("int64", (2, 2))], 0)


@rule
def to_gemm(x, w, c):
    return x @ w + c, op.Gemm(x, w, c), x.rank == 2, w.rank == 2


@pytest.mark.parametrize(("dtype", "count"), [("float", 1), ("int64", 0)])
def test_a_rule_that_makes_what_cannot_run_does_not_apply(dtype, count):
    text = f"g ({dtype}[2,2] x, {dtype}[2,2] w, {dtype}[2,2] c) => ({dtype}[2,2] y)"
    body = "{ m = MatMul(x, w) y = Add(m, c) }"
    engine = Engine([to_gemm], AnalyticObjective(), is_supported)
    assert len(engine.start(onnx_io.read(parsed(f"{text} {body}"))).matches) == count
