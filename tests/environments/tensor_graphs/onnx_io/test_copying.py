"""Copies of models load where they are, whatever the files with their data are called."""

from __future__ import annotations

import errno
import pathlib
import shutil

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import copy, file_names, read, save, write
from tests.environments.tensor_graphs.onnx_io import external_data
from tests.environments.tensor_graphs.onnx_io.external_data import PRODUCT, X
from tests.environments.tensor_graphs.onnx_io.running import run

MODELS = external_data.models()


@pytest.fixture
def elsewhere(tmp_path):
    """A directory with data of another model, by the names that the source uses too."""
    directory = tmp_path / "elsewhere"
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "w.bin").write_bytes(b"precious" * 99)
    return directory


def names_in(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("place", MODELS)
def test_data_come_along(place, tmp_path, elsewhere):
    source = external_data.write(MODELS[place], tmp_path / "source")
    copied, saved = elsewhere / "copy.onnx", elsewhere / "saved.onnx"
    copy(source, copied)
    save(read(source), saved, max_embedded_bytes=0)
    shutil.rmtree(source.parent)
    for path in (copied, saved):
        assert run(path, {"x": X})[0].tolist() == PRODUCT
    assert (elsewhere / "data" / "w.bin").read_bytes() == b"precious" * 99


@pytest.mark.parametrize("place", MODELS)
def test_beside_the_source_its_data_are_used(place, tmp_path):
    source = external_data.write(MODELS[place], tmp_path / "source")
    copy(source, source.with_name("copy.onnx"))
    assert names_in(source.parent) == ["copy.onnx", "data", "m.onnx"]
    assert run(source.with_name("copy.onnx"), {"x": X})[0].tolist() == PRODUCT


@pytest.mark.parametrize("place", MODELS)
@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "", "sub/../../w.bin"])
def test_data_outside_of_the_directory_are_refused(place, location, tmp_path, elsewhere):
    source = external_data.write(external_data.models(location)[place], tmp_path / "source")
    shutil.copyfile(source.parent / "data" / "w.bin", tmp_path / "w.bin")
    for fail in (read, lambda path: copy(path, elsewhere / "copy.onnx")):
        with pytest.raises(UserError, match="outside of the model's directory"):
            fail(source)
    assert names_in(elsewhere) == ["data"]


def test_a_cache_of_links(tmp_path, elsewhere):
    """Hugging Face's cache keeps files by their digests, and links to them by their names."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    source = external_data.write(MODELS["initialiser"], blobs)
    source.rename(blobs / "1c8e")
    (blobs / "data" / "w.bin").rename(blobs / "5f03")
    (snapshot / "data").mkdir(parents=True)
    (snapshot / "m.onnx").symlink_to("../blobs/1c8e")
    (snapshot / "data" / "w.bin").symlink_to("../../blobs/5f03")
    assert file_names(snapshot / "m.onnx") == ("m.onnx", "data/w.bin")
    for path in (snapshot / "copy.onnx", elsewhere / "copy.onnx"):
        copy(snapshot / "m.onnx", path)
        assert run(path, {"x": X})[0].tolist() == PRODUCT
        assert run(write(read(snapshot / "m.onnx")), {"x": X})[0].tolist() == PRODUCT


def test_a_copy_of_fixed_sizes(tmp_path, elsewhere):
    model = onnx.ModelProto()
    model.CopyFrom(MODELS["Constant"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    source = external_data.write(model, tmp_path / "source")
    for path in (elsewhere / "copy.onnx", source.with_name("copy.onnx")):
        copy(source, path, {"x": [2, 3]})
        assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
        assert run(path, {"x": X})[0].tolist() == PRODUCT


def refuse(path: pathlib.Path) -> None:
    assert run(path, {"x": X})[0].tolist() == PRODUCT  # It is complete.
    raise UserError("refused")


def test_what_is_refused_leaves_no_trace(tmp_path, elsewhere):
    source = external_data.write(MODELS["Constant"], tmp_path / "source")
    out = elsewhere / "out.onnx"
    out.write_text("precious")
    for write_fn in (
        lambda check_fn: copy(source, out, check_fn=check_fn),
        lambda check_fn: save(read(source), out, 0, check_fn),
    ):
        with pytest.raises(UserError, match="refused"):
            write_fn(refuse)
        assert names_in(elsewhere) == ["data", "out.onnx"] and out.read_text() == "precious"


def test_a_full_disk_leaves_what_was_there(tmp_path, elsewhere, monkeypatch):
    source = external_data.write(MODELS["initialiser"], tmp_path / "source")
    out = elsewhere / "out.onnx"
    copy(source, out)
    before = names_in(elsewhere)

    def fill(path: pathlib.Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", fill)
    with pytest.raises(UserError, match=r"out.onnx: cannot be written: No space left on device"):
        copy(source, out)
    assert names_in(elsewhere) == before
    assert run(out, {"x": X})[0].tolist() == PRODUCT


def test_the_same_bytes_at_other_places_get_another_name(tmp_path):
    """Two rows of 1,024 numbers, or a matrix of both: what is written is not the same."""
    rows = np.arange(2048, dtype=np.float32).reshape(2, 1024)
    inputs = {"x": [1, 1024]}
    nodes = [onnx.helper.make_node("Add", ["x", name], [f"y{name}"]) for name in "ab"]
    apart = external_data.model_of(
        nodes,
        [
            onnx.numpy_helper.from_array(row[None], name)
            for row, name in zip(rows, "ab", strict=True)
        ],
        inputs,
        {"ya": [1, 1024], "yb": [1, 1024]},
    )
    together = external_data.model_of(
        nodes[:1], [onnx.numpy_helper.from_array(rows, "a")], inputs, {"ya": [2, 1024]}
    )
    for model in (apart, together):
        save(read(model), tmp_path / "m.onnx", max_embedded_bytes=0)
    assert len(names_in(tmp_path)) == 3
