"""Models are saved, with weights in the file or beside it."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from onnx import external_data_helper

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import read, save, write
from tests.environments.tensor_graphs.onnx_io.running import equal, parsed, random_inputs, run

SIZE = 128


@pytest.fixture
def model() -> onnx.ModelProto:
    result = parsed(
        f"""g (float[1,{SIZE}] x, float[{SIZE},{SIZE}] w, float[{SIZE}] b) => (float[1,{SIZE}] y)
        {{ h = MatMul(x, w) y = Add(h, b) }}"""
    )
    del result.graph.input[1:]
    rng = np.random.default_rng(0)
    for name, shape in (("w", (SIZE, SIZE)), ("b", (SIZE,))):
        array = rng.normal(size=shape).astype(np.float32)
        result.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return result


@pytest.fixture
def external(model: onnx.ModelProto, tmp_path: pathlib.Path) -> pathlib.Path:
    """A model file whose weights are in another file."""
    path = tmp_path / "external.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save_model(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_weights_in_another_file_are_read(model, external):
    assert write(read(external)) == write(read(model))


def test_large_weights_go_into_another_file(model, tmp_path):
    path = tmp_path / "large.onnx"
    save(read(model), path, max_embedded_bytes=1000)
    names = sorted(one.name for one in tmp_path.iterdir())
    assert len(names) == 2 and names[0] == "large.onnx" and names[1].endswith(".data")
    assert path.stat().st_size < 2000
    onnx.checker.check_model(str(path), full_check=True)
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(path, inputs))
    again = tmp_path / "again.onnx"
    save(read(path), again)
    assert equal(run(model, inputs), run(again, inputs))
    assert again.stat().st_size > 4 * SIZE * SIZE


def test_a_file_takes_the_place_of_the_one_that_it_was_read_from(model, external):
    """Its weights are read from the old file while the new one is written."""
    save(read(external), external, max_embedded_bytes=1000)
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(external, inputs))


def test_nothing_is_written_if_saving_fails(model, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("precious")
    graph = read(model)
    graph.header.shell.opset_import[0].version = 5
    edit = graph.edit()
    with pytest.raises(UserError, match="cannot be written"):
        save(graph, tmp_path / "none" / "model.onnx")
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_text() == "precious"
    del edit


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "", "sub/../../w.bin"])
def test_weights_outside_of_the_directory_are_refused(external, location):
    broken = onnx.load(external, load_external_data=False)
    _set(broken, "location", location)
    external.write_bytes(broken.SerializeToString())
    with pytest.raises(UserError, match="outside of the model's directory"):
        read(external)


def test_weights_behind_a_link_are_refused(external, tmp_path):
    (tmp_path / "w.bin").rename(tmp_path.parent / "elsewhere.bin")
    (tmp_path / "w.bin").symlink_to(tmp_path.parent / "elsewhere.bin")
    with pytest.raises(UserError, match="outside of the model's directory"):
        read(external)


def test_missing_weights_are_named(external, tmp_path):
    (tmp_path / "w.bin").unlink()
    with pytest.raises(UserError, match=r"tensor 'w': its data are in the file 'w.bin', which is"):
        read(external)


def test_weights_that_are_too_short_are_named(external, tmp_path):
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(UserError, match=r"tensor 'w' of shape \[128, 128\]: expected 65536 bytes"):
        read(external)


@pytest.mark.parametrize("offset", ["-4", "many"])
def test_places_of_weights_that_make_no_sense(external, offset):
    broken = onnx.load(external, load_external_data=False)
    _set(broken, "offset", offset)
    external.write_bytes(broken.SerializeToString())
    with pytest.raises(UserError, match="the model is damaged"):
        read(external)


def test_external_weights_need_a_file(external):
    broken = onnx.load(external, load_external_data=False)
    with pytest.raises(UserError, match="give the path of the model"):
        read(broken)


def test_external_weights_in_subgraphs_come_along(tmp_path):
    model = parsed(
        """g (bool yes) => (float[4] y) {
            y = If (yes) <then_branch = t () => (float[4] u)
                { u = Constant <value = float[4] {1, 2, 3, 4}> () },
              else_branch = e () => (float[4] v)
                { v = Constant <value = float[4] {5, 6, 7, 8}> () }>
        }"""
    )
    inputs = {"yes": np.array(True)}
    expected = run(model, inputs)
    for branch in model.graph.node[0].attribute:
        tensor = branch.g.node[0].attribute[0].t
        raw = np.array(tensor.float_data, np.float32).tobytes()
        tensor.ClearField("float_data")
        tensor.raw_data = raw
        external_data_helper.set_external_data(tensor, f"{branch.name}.bin", 0, len(raw))
        (tmp_path / f"{branch.name}.bin").write_bytes(raw)
        tensor.ClearField("raw_data")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert equal(expected, run(write(read(tmp_path / "model.onnx")), inputs))


def _set(model: onnx.ModelProto, key: str, value: str) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = value
