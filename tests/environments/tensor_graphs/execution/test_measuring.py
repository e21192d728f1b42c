"""Models are run, and two of them compared by speed and by outputs."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.execution import (
    backends,
    differences,
    equivalence,
    inputs,
    measuring,
)
from environments.tensor_graphs.execution.sizes import OpenSizes


def chain(*ops: str, size: int | str = 64) -> onnx.ModelProto:
    """Make a chain of operators, x: [size, 64] -> y: [size, 64]; MatMul squares its input."""
    names = ["x", *(f"v{number}" for number in range(len(ops) - 1)), "y"]
    nodes = [
        helper.make_node(op, [names[k]] * (2 if op in ("MatMul", "Add") else 1), [names[k + 1]])
        for k, op in enumerate(ops)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, 64]) for n in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y])
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def test_backends() -> None:
    names = ["onnxruntime", "onnxruntime-disable", "onnxruntime-basic", "onnxruntime-extended"]
    outputs = []
    for name in names:
        backend = backends.backend(name)
        assert backend.name == name
        assert re.match(r"\d+\.\d+", backend.version)
        model = models.make("bert-tiny")
        outputs.append(backend.open(model).run(inputs.random_inputs(model)))
        assert list(outputs[-1]) == ["last_hidden_state", "pooler_output"]
    for found in outputs[1:]:
        assert all(one.is_equal for one in differences.compare_outputs(outputs[0], found))
    with pytest.raises(UserError, match="no backend 'tensorrt'; there are onnxruntime-disable"):
        backends.backend("tensorrt")


def test_what_cannot_be_run(tmp_path: pathlib.Path) -> None:
    model = chain("Relu", "Nonsense")
    with pytest.raises(UserError, match="onnxruntime cannot load model 'chain': .*Nonsense"):
        backends.backend().open(model)
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(UserError, match=r"onnxruntime cannot load .*empty\.onnx"):
        backends.backend().open(tmp_path / "empty.onnx")
    with pytest.raises(UserError, match="onnxruntime cannot run the model") as caught:
        backends.backend().open(chain("Relu")).run({"x": np.zeros([1, 1], np.float32)})
    assert "\n" not in str(caught.value)


def test_random_inputs_are_within_bounds() -> None:
    model = models.make("bert-tiny", batch="N")
    sizes = OpenSizes(onnx_io.read(model)).at({"N": 5})
    found = inputs.random_inputs(model, seed=1, sizes=sizes)
    assert {name: array.shape for name, array in found.items()} == {
        "input_ids": (5, 128),
        "attention_mask": (5, 128),
        "token_type_ids": (5, 128),
    }
    assert found["input_ids"].max() > 20000
    assert set(np.unique(found["attention_mask"])) == {0, 1}
    assert found["input_ids"].dtype == np.int64
    again = inputs.random_inputs(model, seed=1, sizes=sizes)
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_integers_span_the_range_unless_they_index() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[99] id, int64[99] word, int8[99] small) => (float[99,1] y, int64[99] h, int8[99] s)
        <float[5,1] table = {1, 2, 3, 4, 5}>
        { y = Gather(table, word) h = Mul(id, id) s = Mul(small, small) }"""
    )
    found = inputs.whole_range_inputs(model)
    assert set(found["word"].tolist()) == set(range(5))
    assert set(found["small"].tolist()) >= {-128, 127} and found["small"].dtype == np.int8
    assert found["id"].min() == -(2**63) and found["id"].max() == 2**63 - 1
    assert len({int(abs(float(one))).bit_length() // 8 for one in found["id"]}) > 5


def test_integers_that_are_compared_are_what_they_are_compared_with() -> None:
    """Each seed begins with another one of them; what is compared with nothing is 0 or 1."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64 rate, int64[9] many, int64[9] mask) => (bool y, bool[9] z, int64[9] m)
        <int64 high = {16000}, int64 low = {8000}, int64[1] three = {3}, int64[1] all = {0}>
        { a = Equal(rate, high) b = Equal(low, rate) y = Or(a, b) u = Unsqueeze(many, all)
          v = Squeeze(u, all) z = Less(v, three) m = Add(mask, mask) }"""
    )
    drawn = [inputs.random_inputs(model, seed) for seed in range(2)]
    assert {int(one["rate"]) for one in drawn} == {8000, 16000}
    assert set(drawn[0]["many"].tolist()) == {3} and set(drawn[0]["mask"].tolist()) <= {0, 1}


def test_inputs_of_the_users(tmp_path: pathlib.Path) -> None:
    model, path = chain("Relu", size="N"), tmp_path / "inputs.npz"
    x = np.ones([3, 64], np.float32)
    np.savez(path, x=x)
    np.testing.assert_array_equal(inputs.load_inputs(path, model)["x"], x)
    for arrays, message in [
        ({"z": x}, "input 'x' is missing; found z"),
        ({"x": x, "z": x}, "the model has no input 'z', but x"),
        ({"x": x[:, :3]}, r"'x' is float32\[3, 3\]; the model expects float32\['\?', 64\]"),
        ({"x": x.astype("f8")}, "is float64"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=message):
            inputs.load_inputs(path, model)
    path.write_text("nothing")
    with pytest.raises(UserError, match=r"inputs\.npz: expected a \.npz file"):
        inputs.load_inputs(path, model)


def test_ratio() -> None:
    # Half of the pairs lie on each side of 0.5; of 16, the 4th from each end enclose its median.
    first = [1.0] * 16
    ratio = measuring.ratio_of(first, [0.42 + 0.01 * k for k in range(16)])
    assert ratio.value == pytest.approx(0.495)
    assert (ratio.low, ratio.high) == (pytest.approx(0.46), pytest.approx(0.53))
    assert str(ratio) == "0.495 [0.460, 0.530]"
    assert measuring.ratio_of([2.0], [1.0]) == measuring.Ratio(0.5, 0.5, 0.5)


def comparison(ratio: float, same: float) -> measuring.Comparison:
    one, other = (measuring.Ratio(value, value - 0.01, value + 0.01) for value in (ratio, same))
    return measuring.Comparison(one, other, 1.0, ratio, 9)


def test_a_gain_lies_below_what_equal_models_show() -> None:
    assert comparison(0.95, 1.0).is_faster
    assert not comparison(0.95, 1.05).is_faster
    assert not comparison(0.985, 1.0).is_faster
    assert comparison(1.05, 1.0).is_slower
    assert not comparison(1.05, 0.95).is_slower


def test_more_work_takes_longer() -> None:
    short, long = chain("MatMul"), chain(*["MatMul"] * 8)
    feeds = inputs.random_inputs(short)
    backend = backends.backend("onnxruntime-disable")
    found = measuring.compare(short, long, feeds, backend, seconds=0.5)
    assert found.is_slower
    assert found.num_pairs >= 9
    assert 0 < found.first_ms < found.other_ms


def test_a_comparison_worked_by_hand(work_clock) -> None:
    """10 ms for one product, 80 ms for eight: 9 turns take 0.9 s, so 0.95 s take ten."""
    short, long = chain("MatMul"), chain(*["MatMul"] * 8)
    feeds = inputs.random_inputs(short)
    backend = backends.backend("onnxruntime-disable")
    for seconds, num_pairs in ((0.1, 9), (0.95, 10), (1.95, 20)):
        found = measuring.compare(short, long, feeds, backend, seconds=seconds)
        assert (found.first_ms, found.other_ms) == (pytest.approx(10), pytest.approx(80))
        ratios = [getattr(found.ratio, name) for name in ("value", "low", "high")]
        same = [getattr(found.same, name) for name in ("value", "low", "high")]
        assert (ratios, same) == (pytest.approx([8] * 3), pytest.approx([1] * 3))
        assert found.num_pairs == num_pairs


def test_equivalence() -> None:
    model, other = models.make("bert-tiny"), models.make("bert-tiny", opset=17)
    plain = backends.backend("onnxruntime-disable")
    trials = [inputs.random_inputs(model, seed) for seed in range(3)]
    found = equivalence.check(model, other, trials, on=plain)
    assert found.is_equal
    assert found.num_trials == 3
    assert 0 < found.max_relative_error < 1e-5
    for weight in other.graph.initializer:
        if weight.name == "pooler/dense.weight":
            value = numpy_helper.to_array(weight) * np.float32(1.01)
            weight.CopyFrom(numpy_helper.from_array(value, weight.name))
    found = equivalence.check(model, other, trials, on=plain)
    assert not found.is_equal
    assert [one.is_equal for one in found.differences] == [True, False]
    assert re.match(r"output 'pooler_output': relative error .*e-0\d, 1e-04", str(found.worst))


def difference(expected: object, found: object) -> differences.Difference:
    (only,) = differences.compare_outputs({"y": expected}, {"y": found})
    return only


def test_differences() -> None:
    x = np.array([0, 1, 100], np.float32)
    assert difference(x, x + np.array([0.005, 0, 0], np.float32)).is_equal
    assert difference(x, x + np.array([0.02, 0, 0], np.float32)).relative_error == pytest.approx(
        2e-4
    )
    assert difference(x, x[:2]).reason == "float32[3] became float32[2]"
    assert difference(x, x.astype("f8")).reason == "float32[3] became float64[3]"
    assert difference(x, x * np.nan).reason == "it is not finite everywhere, as it should be"
    assert difference(x * np.nan, x).reason == "its NaNs or infinities differ"
    assert difference(x * np.nan, x * np.nan).is_equal
    assert difference(np.arange(3), np.arange(3)).is_equal
    assert difference(np.arange(3), np.arange(3)[::-1]).reason == "its int64[3] is not equal"
    assert difference([x, x], [x, x]).is_equal
    assert difference([x, x], [x]).reason == "2 elements became 1"
    assert difference([{"a": 1}], [{"b": 1}]).reason == "its keys differ"
    one, other = differences.compare_outputs({"y": x}, {"z": x})
    assert str(one) == "output 'y': it is missing"
    assert str(other) == "output 'z': the first model has none"


@dataclasses.dataclass
class CountingBackend:
    """onnxruntime; remembers how often it opened a model."""

    opened: int = 0

    def open(self, model: backends.Model) -> backends.Program:
        self.opened += 1
        return backends.backend().open(model)


def test_a_large_model_is_opened_once(monkeypatch) -> None:
    """With what it is measured against it fills the memory twice, not five times."""
    model = chain("MatMul")
    feeds = inputs.random_inputs(model)
    small = CountingBackend()
    measuring.Bench(model, feeds, small).at(feeds)
    assert small.opened == 2
    monkeypatch.setattr(measuring, "_LARGE_BYTES", 10)
    large = CountingBackend()
    bench = measuring.Bench(model, feeds, large, backends.backend().open(model))
    assert large.opened == 0
    bench.compare(model, seconds=0.01, pairs=2)
    assert large.opened == 1


def test_size_counts_weights_in_other_files(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    model = models.make("bert-tiny")
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=0)
    (data,) = set(tmp_path.iterdir()) - {path}
    assert measuring.size_bytes(path) == path.stat().st_size + data.stat().st_size
