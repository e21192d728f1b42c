"""`tfrl optimize` on models with data in other files, and what it leaves where it writes."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution.isolation import remote
from tests.environments.tensor_graphs.onnx_io import external_data
from tests.environments.tensor_graphs.onnx_io.external_data import PRODUCT, X
from tests.environments.tensor_graphs.onnx_io.running import run
from tfrl_systems.systems.tensor_graphs.optimize import writing

QUICK = ("--objective", "analytic", "--expansions", "50", "--no-measure")


@pytest.fixture
def source(tmp_path):
    return external_data.write(external_data.models()["Constant"], tmp_path / "source")


@pytest.fixture
def out(tmp_path):
    """A place in a directory where another model's data are called like the source's."""
    (tmp_path / "out" / "data").mkdir(parents=True)
    (tmp_path / "out" / "data" / "w.bin").write_bytes(b"precious" * 99)
    return tmp_path / "out" / "fast.onnx"


def files_in(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def double(source):
    """Double the weights in the source's data."""
    data = source.parent / "data" / "w.bin"
    data.write_bytes(bytes(external_data.OFFSET) + (2 * external_data.WEIGHT).tobytes())


def test_a_copy_has_data_of_its_own(source, out, tfrl):
    before = files_in(out.parent)
    assert tfrl("optimize", source, "-o", out, *QUICK).status == 0
    written = files_in(out.parent)
    assert before.items() <= written.items() and len(written) == 3
    assert tfrl("optimize", source, "-o", out, *QUICK).status == 0
    assert files_in(out.parent) == written
    shutil.rmtree(source.parent)
    assert run(out, {"x": X})[0].tolist() == PRODUCT


def test_data_of_an_earlier_run_are_replaced(source, out, tfrl):
    assert tfrl("optimize", source, "-o", out, *QUICK).status == 0
    first = files_in(out.parent).keys()
    double(source)
    assert tfrl("optimize", source, "-o", out, *QUICK).status == 0
    second = files_in(out.parent).keys()
    assert len(second) == 3 and len(first & second) == 2
    np.testing.assert_array_equal(run(out, {"x": X})[0], 2 * np.array(PRODUCT))


def test_data_that_the_source_uses_too_are_kept(source, out, tfrl):
    """The source is a copy of what an earlier run wrote to the same place."""
    assert tfrl("optimize", source, "-o", out, *QUICK).status == 0
    copied = out.with_name("copied.onnx")
    model = onnx.load(out, load_external_data=False)
    relus = [onnx.helper.make_node("Relu", [before], [after]) for before, after in ("ya", "ab")]
    model.graph.node.extend(relus)
    model.graph.output[0].name = "b"
    onnx.save(model, copied)
    before = files_in(out.parent)
    ran = tfrl("optimize", copied, "-o", out, "--json", *QUICK)
    assert ran.status == 0 and ran.json["gain"]
    assert files_in(out.parent).keys() == before.keys()
    assert run(copied, {"x": X})[0].tolist() == run(out, {"x": X})[0].tolist() == PRODUCT


@pytest.mark.parametrize("option", ["-o", "--report", "--checkpoint"])
def test_the_source_s_data_are_no_place_to_write_to(option, source, out, tfrl):
    before = files_in(source.parent)
    places = ("-o", out) if option != "-o" else ()
    ran = tfrl("optimize", source, *places, option, source.parent / "data" / "w.bin", *QUICK)
    assert ran.status == 1 and "expected another file than" in ran.err
    assert files_in(source.parent) == before and not out.exists()


def test_what_does_not_load_is_not_written(source, out, tfrl):
    """onnxruntime takes a file of this suffix for one of its own format."""
    before = files_in(out.parent)
    ran = tfrl("optimize", source, "-o", out.with_suffix(".ort"), *QUICK)
    assert ran.status == 1 and ran.err.count("\n") == 1
    assert "fast.ort: not written: onnxruntime cannot load the new model" in ran.err
    assert files_in(out.parent) == before


def test_a_copy_of_what_does_not_load_either(source, out):
    """Nobody here can tell whether the copy is right, but it is one."""
    model = onnx.load(source, load_external_data=False)
    model.graph.node[1].domain = "own"
    model.opset_import.add(domain="own", version=1)
    onnx.save(model, source)
    writing.write(source, out, source)
    copied = onnx.load(out, load_external_data=False)
    assert [node.domain for node in copied.graph.node] == ["", "own"]
    assert len(files_in(out.parent)) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_is_interrupted_leaves_what_was_there(error, source, out, monkeypatch):
    writing.write(source, out, source)
    before = files_in(out.parent)
    double(source)

    def fail(name):
        raise error

    monkeypatch.setattr(remote, "isolated", fail)
    with pytest.raises(error):
        writing.write(source, out, source)
    assert files_in(out.parent) == before
