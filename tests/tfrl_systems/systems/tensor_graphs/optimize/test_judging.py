"""`tfrl optimize` is never wrong: where digits, integers, sizes or onnxruntime itself give way.

Each model has room for a rewrite that is right for usual numbers only, or for none. Candidates are
checked and measured once, early or in the end.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution import differences, equivalence
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.search import Budget
from environments.tensor_graphs.selection.selection import Selector
from tests.environments.tensor_graphs.small_models import adapter, write, written
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import assert_same, ops_of, outputs
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize import optimization
from tfrl_systems.systems.tensor_graphs.optimize.judging import Judge
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.task import Reading, Task
from tfrl_systems.systems.tensor_graphs.original import Original
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

QUICK = ("--objective", "analytic", "--expansions", "60", "--measure-seconds", "0.05")


NEAR = np.float32([[1.7e9 + 256, 5e6 + 3], [1.7e9 - 1024, 5e6]])


@pytest.mark.parametrize(
    ("numbers", "nodes"),
    [
        ("far = {1.7e9, 5e6}, float[2] s = {0.001, 0.1}", "c = Sub(x, far) d = Mul(c, s)"),
        ("far = {-1.7e9, -5e6}, float[2] s = {1e3, 10}", "c = Add(far, x) d = Div(c, s)"),
    ],
)
def test_digits_of_large_numbers_are_not_lost(optimized, numbers, nodes):
    """(x - far) * s and what follows; multiplied out, all digits of 1.7e9 * 0.001 are noise."""
    text = f"""g (float[n,2] x) => (float[n,2] y) <float[2] {numbers},
        float[2,2] w = {{1, 2, 3, -1}}> {{ {nodes} y = MatMul(d, w) }}"""
    ran, path, out = optimized(text, *QUICK, "--dimension", "n=64")
    assert ran.result
    assert_same(path, out, rtol=1e-5, x=NEAR)


@pytest.mark.parametrize(
    "nodes",
    [
        # |x·x| is x·x for small numbers only.
        "q = Mul(x, x) h = Abs(q) y = Mod(h, m)",
        # The product of both divisors, 1.8e19, is no int64.
        "d = Div(x, a) y = Div(d, b)",
    ],
)
def test_integers_that_wrap_around(optimized, nodes):
    text = f"""g (int64[n] x) => (int64[n] y)
        <int64 m = {{1000}}, int64 a = {{3037000500}}, int64 b = {{6074001001}}> {{ {nodes} }}"""
    ran, path, out = optimized(text, "--objective", "analytic", "--no-measure")
    assert ran.result
    x = np.int64([3, 4_000_000_007, -(2**63), 2**62 + 1])
    assert_same(path, out, x=x)


def test_two_sizes_of_one_name(optimized):
    """A file calls every first axis n; one of them may be 1 where the other is not."""
    text = """g (float[n,2] x, float[n,2] z) => (float[n,2] y) <float[2,2] w = {1, 2, 3, 4}>
        { s = Shape(x) e = Expand(z, s) a = Add(x, e) m = MatMul(z, w) y = Add(a, m) }"""
    ran, path, out = optimized(text, *QUICK)
    assert ran.result
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    for z in (x, x[:1]):
        assert_same(path, out, x=x, z=z)


def test_a_model_that_runs_without_optimisations_only(optimized):
    """Relu and Clip of doubles; onnxruntime makes one of them that it cannot run."""
    text = """g (double[n,6] x) => (double[n,6] y)
        <double lo = {-1}, double hi = {0.1}, double one = {1}>
        { t = Relu(x) u = Clip(t, lo, hi) y = Mul(u, one) }"""
    ran, _, out = optimized(text, *QUICK, opset=14)
    assert ran.result
    x = np.linspace(-1, 1, 6)[np.newaxis]
    (rewritten,) = outputs(out, "ORT_DISABLE_ALL", x=x)
    np.testing.assert_array_equal(rewritten, np.clip(x, 0, 0.1))


def test_an_output_without_any_number_proves_nothing(optimized):
    text = """g (float[2] x) => (float[2] y) <float minus = {-1}>
        { a = Sqrt(minus) b = Relu(x) c = Relu(b) y = Mul(c, a) }"""
    ran, *_ = optimized(text, *QUICK)
    assert ran.status == 0 and ran.json["gain"] is False
    assert "output 'y' has no finite number" in ran.json["reason"]


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        # Only sizes of 1 come and go; onnxruntime computes no size where there are no elements.
        ("u = Unsqueeze(x, one)", (0, 1, 3, 2)),
        ("u = Flatten(x)", (0, 6)),
        ("u = Flatten<axis = 2>(x)", (0, 2)),
    ],
)
def test_what_only_moves_elements_does_so_with_none_of_them(optimized, nodes, rows):
    text = f"""g (float[n,m,2] x) => (y) <int64[1] one = {{1}}>
        {{ {nodes} a = Neg(u) b = Neg(a) y = Relu(b) }}"""
    ran, _, out = optimized(text, *QUICK, "--dimension", "n=4", "--dimension", "m=3")
    assert ran.result["gain"]
    (rewritten,) = outputs(out, x=np.zeros((0, 3, 2), np.float32))
    assert rewritten.shape == rows


def test_one_rule_that_rounds_too_much_costs_no_others(optimized, monkeypatch):
    """Whatever lacks the product is refused, as if folding it had cost digits."""
    check = equivalence.check

    def refuse(first, path, *arguments, **keywords):
        comparison = check(first, path, *arguments, **keywords)
        if "Mul" in ops_of(path):
            return comparison
        wrong = differences.unlike(comparison.worst.output, "it is less exact")
        return dataclasses.replace(comparison, differences=(wrong,))

    monkeypatch.setattr(equivalence, "check", refuse)
    text = """g (float[n,2] x) => (y) <float[2,2] w = {1, 2, 3, 4}, float s = {3}>
        { p = MatMul(x, w) q = Mul(p, s) a = Neg(q) b = Neg(a) y = Relu(b) }"""
    ran, _, out = optimized(text, *QUICK, "--dimension", "n=4")
    assert ran.result["gain"]
    assert "Mul" in ops_of(out) and "Neg" not in ops_of(out)


def test_a_model_that_is_one_if_becomes_faster(optimized, tmp_path):
    """x·W + (x·A)·B of x, or of -x: one product out of three is left in both branches."""
    random = np.random.default_rng(1)
    shapes = {"w": (192, 192), "a": (192, 96), "b": (96, 192), "x": (64, 192)}
    arrays = {name: random.normal(size=shapes[name]).astype(np.float32) for name in shapes}
    x = arrays.pop("x")
    body = "(i{0}, w) d{0} = MatMul(i{0}, a) u{0} = MatMul(d{0}, b) y{0} = Add(m{0}, u{0}) }}"
    branches = [
        f"{name} = b{n} () => (y{n}) {{ i{n} = {op}(x) m{n} = MatMul{body.format(n)}"
        for n, (name, op) in enumerate([("then_branch", "Identity"), ("else_branch", "Neg")])
    ]
    model = written(
        f"y = If (yes) <{', '.join(branches)}>", arrays, {"x": [64, 192]}, {"y": [64, 192]}
    )
    model.graph.input.append(onnx.helper.make_tensor_value_info("yes", 9, []))
    np.savez(tmp_path / "inputs.npz", x=x, yes=np.array(True))
    words = ("--inputs", tmp_path / "inputs.npz", "--measure-seconds", "0.4")
    ran, path, out = optimized(model, *words, "--objective", "analytic", "--expansions", "300")
    assert ran.result["gain"] is True and ran.json["measured_ratio"] < 0.9
    fast = onnx.load(out)
    onnx.checker.check_model(fast, full_check=True)
    assert ops_of(out) == ["If"]
    for branch in (attribute.g for attribute in fast.graph.node[0].attribute):
        assert sum(node.op_type in ("MatMul", "Gemm") for node in branch.node) == 1
    for choice in (False, True):
        assert_same(path, out, atol=1e-4, x=x, yes=np.array(choice))


def test_weights_of_int8_stay_so(optimized):
    text = """g (float[4,2] x) => (float[4,2] y)
        <float s = {0.05}, uint8 z = {128}, float t = {0.02}, int8 zero = {0},
         int8[2,2] w = {-32, 7, 1, 31}> {
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
            v = DequantizeLinear(w, t, zero) m = MatMul(d, v) a = Relu(m) y = Relu(a) }"""
    ran, _, out = optimized(text, "--no-measure", *QUICK)
    assert ran.result["gain"] is True and ops_of(out).count("Relu") == 1
    types = {tensor.name: tensor.data_type for tensor in onnx.load(out).graph.initializer}
    assert types["w"] == onnx.TensorProto.INT8


def test_strict_keeps_nan(optimized):
    """x / y * y is NaN where y is 0; without --strict it becomes x. 2 · 3 becomes 6 either way."""
    text = """g (float[4] x, float[4] y) => (float[4] z) <float two = {2}, float three = {3}>
        { q = Div(x, y) same = Mul(q, y) twice = Mul(same, two) z = Mul(twice, three) }"""
    inputs = {"x": np.float32([1, 2, 3, 0]), "y": np.float32([2, 0, 1, 0])}
    exact = [6.0, np.nan, 18.0, np.nan]
    for options, expected in (((), [6.0, 12.0, 18.0, 0.0]), (("--strict",), exact)):
        ran, path, out = optimized(text, "--no-measure", *QUICK, *options)
        assert ran.status == 0 and ran.json["gain"]
        assert ran.json["strict"] is bool(options)
        np.testing.assert_array_equal(outputs(out, **inputs)[0], expected)
    np.testing.assert_array_equal(outputs(path, **inputs)[0], exact)


@pytest.mark.parametrize("scale, has_gain", [(3.0, True), (np.inf, False)])
def test_strict_asks_whether_constants_are_finite(optimized, scale, has_gain):
    """x = [1, 1], w = [2, -1]: the product is 1, times inf is inf; with w · inf it would be NaN."""
    weights = {"w": np.float32([[2], [-1]]), "s": np.float32([[scale]])}
    model = written("p = MatMul(x, w) z = Mul(p, s)", weights, {"x": [3, 2]}, {"z": [3, 1]})
    ran, *_ = optimized(model, "--strict", "--no-measure", *QUICK)
    assert ran.json["gain"] is bool(ran.json["substitutions"]) is has_gain


def task_of(path, began_s):
    """The task of a model that has been optimised since some time."""
    levels = backend(), backend("onnxruntime-basic")
    request = Optimization(
        model=path, objective="analytic", seconds=1.0, measure_seconds=2.0, expansions=60
    )
    original = Original("m", path, levels)
    choice = original.choose({})
    problem, trials = GraphProblem.at(original, request, choice), original.make_trials(choice)
    reading = Reading(original, (), None)
    return Task(request, reading, problem, trials, began_s)


def test_what_was_looked_at_early_is_chosen_though_all_time_is_over(tmp_path, monkeypatch):
    """It was compared when there was time, and no other state is compared later."""
    task = task_of(write(tmp_path / "m.onnx", adapter()), time.monotonic() - 100)
    result = task.problem.search("greedy", Budget(expansions=task.request.expansions or 0))
    best = result.candidates[0]
    assert best.parent is not None and best.parent.match is not None
    checked, check = [], equivalence.check
    monkeypatch.setattr(
        equivalence, "check", lambda *all, **named: checked.append(all[1]) or check(*all, **named)
    )
    judge = Judge(task, tmp_path, Reporter())
    judge.look_at(best)
    judge.look_at(best)
    assert len(checked) == 1
    selection = judge.select([best.parent, best])
    assert selection.chosen is not None and selection.chosen.visited is best
    assert len(checked) == 1 and selection.chosen.path == checked[0]


def test_a_model_whose_runs_take_too_long_is_not_searched(tmp_path, optimized, monkeypatch):
    """A run of 1 s cannot be measured in what is left of a second."""
    monkeypatch.setattr(Selector, "run_s", 1.0)
    monkeypatch.setattr(optimization, "search", lambda *_: pytest.fail("it is searched"))
    ran, *_ = optimized(adapter(), "--seconds", "1")
    assert ran.json["gain"] is False
    assert "no time to measure, since one run takes 1000 ms" in ran.json["reason"]
