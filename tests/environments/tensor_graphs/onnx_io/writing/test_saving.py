"""Models are saved and copied, with weights in the file or beside it, whatever that is called."""

from __future__ import annotations

import errno
import pathlib
import resource
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import copy, file_names, read, save, write
from tests.environments.tensor_graphs.onnx_io import external_data
from tests.environments.tensor_graphs.onnx_io.external_data import PRODUCT, X
from tests.environments.tensor_graphs.onnx_io.running import equal, random_inputs, run, with_weights
from tests.environments.tensor_graphs.small_models import write_large

SIZE = 128
MODELS = external_data.models()


@pytest.fixture
def model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"w": (SIZE, SIZE), "b": (SIZE,)}
    return with_weights(
        f"""g (float[1,{SIZE}] x, float[{SIZE},{SIZE}] w, float[{SIZE}] b) => (float[1,{SIZE}] y)
        {{ h = MatMul(x, w) y = Add(h, b) }}""",
        **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()},
    )


@pytest.fixture
def external(model: onnx.ModelProto, tmp_path: pathlib.Path) -> pathlib.Path:
    """A model file whose weights are in another file."""
    path = tmp_path / "external.onnx"
    emptied = onnx.ModelProto()
    emptied.CopyFrom(model)
    onnx.save_model(emptied, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def moves_weights(model: onnx.ModelProto, inputs: list, path: pathlib.Path) -> None:
    """Save a model with its weights in another file, and run it from there."""
    save(read(model), path, max_embedded_bytes=1000)
    assert path.stat().st_size < 2000
    for arrays in inputs:
        assert equal(run(model, arrays), run(path, arrays))


def test_large_weights_go_into_another_file(model, tmp_path):
    path, inputs = tmp_path / "large.onnx", random_inputs(model)
    moves_weights(model, [inputs], path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2 and names[0] == "large.onnx" and names[1].endswith(".data")
    onnx.checker.check_model(str(path), full_check=True)
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
    with pytest.raises(UserError, match="cannot be written"):
        save(graph, tmp_path / "none" / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_text() == "precious"


def test_large_defaults_of_inputs_go_into_another_file_too(model, tmp_path):
    """Files of old exporters list every weight as an input whose default it is."""
    for tensor in model.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, 1, tensor.dims)
        model.graph.input.append(info)
    x = {"x": np.ones((1, SIZE), np.float32)}
    moves_weights(model, [x, {**x, "w": np.eye(SIZE, dtype=np.float32)}], tmp_path / "m.onnx")


def test_what_is_refused_is_not_written(model, tmp_path):
    """An earlier file with the same data keeps them."""
    path, inputs = tmp_path / "large.onnx", random_inputs(model)

    def refuse(written: pathlib.Path) -> None:
        assert equal(run(model, inputs), run(written, inputs))
        raise UserError("refused")

    for num_files in (0, 2):
        with pytest.raises(UserError, match="refused"):
            save(read(model), path, 1000, refuse)
        assert len(list(tmp_path.iterdir())) == num_files
        save(read(model), path, 1000)
    assert equal(run(model, inputs), run(path, inputs))


@pytest.mark.parametrize("max_embedded_bytes", [1000, 1 << 20])
def test_a_disk_that_takes_no_more(max_embedded_bytes, model, tmp_path):
    graph = read(model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"m.onnx: cannot be written: File too large"):
            save(graph, tmp_path / "m.onnx", max_embedded_bytes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def behind_a_link(weights: pathlib.Path) -> None:
    weights.rename(weights.parent.parent / "elsewhere.bin")
    weights.symlink_to(weights.parent.parent / "elsewhere.bin")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (behind_a_link, "outside of the model's directory"),
        (lambda weights: weights.write_bytes(b"1234"),
         r"tensor 'w' of shape \[128, 128\]: expected 65536 bytes"),
        (pathlib.Path.unlink, r"tensor 'w': its data are in the file 'w.bin', which is"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_read(external, tmp_path, spoil, message):
    spoil(tmp_path / "w.bin")
    with pytest.raises(UserError, match=message):
        read(external)


@pytest.mark.parametrize("offset", ["-4", "many"])
def test_places_of_weights_that_make_no_sense(external, offset):
    broken = onnx.load(external, load_external_data=False)
    for tensor in broken.graph.initializer:
        next(entry for entry in tensor.external_data if entry.key == "offset").value = offset
    external.write_bytes(broken.SerializeToString())
    with pytest.raises(UserError, match="the model is damaged"):
        read(external)


def test_external_weights_need_a_file(external):
    broken = onnx.load(external, load_external_data=False)
    with pytest.raises(UserError, match="give the path of the model"):
        read(broken)


def test_large_weights_in_a_body_go_into_another_file_too(tmp_path):
    model = with_weights(
        """g (bool yes, float[1,64] x, float[64,64] w) => (float[1,64] y) {
            y = If (yes) <then_branch = t () => (float[1,64] u) { u = MatMul(x, w) },
              else_branch = e () => (float[1,64] v) { v = Neg(x) }>
        }""",
        w=np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32),
    )
    x = np.ones((1, 64), np.float32)
    inputs = [{"yes": np.array(yes), "x": x} for yes in (False, True)]
    moves_weights(model, inputs, tmp_path / "m.onnx")


MEASURED = """
import resource, sys
from environments.tensor_graphs.onnx_io import read, save
save(read(sys.argv[1]), sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("opset", [11, 17])
def test_a_model_of_more_than_2_gib(tmp_path, opset):
    """Neither reading nor writing holds all weights twice, in old opsets and new ones."""
    path, written = tmp_path / "m.onnx", tmp_path / "written.onnx"
    size_bytes = write_large(path, opset, num_layers=10, size=8192)
    assert size_bytes > 2.5e9
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(written)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert int(done.stdout) * 1024 < 2 * size_bytes
    assert written.stat().st_size < 1e5
    (data,) = tmp_path.glob("written.onnx.*.data")
    assert size_bytes <= data.stat().st_size < 1.01 * size_bytes
    graph = read(written)
    products = [node for node in graph.nodes.values() if node.op == "MatMul"]
    assert len(products) == 10
    first, last = (graph.nodes[products[k].inputs[1].node].value for k in (0, -1))
    assert last[0, 0] - first[0, 0] == pytest.approx(9 / 1000, abs=1e-6)


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
