"""Models are saved and copied, with weights in the file or beside it, whatever that is called."""

from __future__ import annotations

import pathlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable

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


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with data of another model, by the names that the source uses too."""
    directory = tmp_path / "elsewhere"
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "w.bin").write_bytes(b"precious" * 99)
    return directory


def names_in(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def old_export(model: onnx.ModelProto) -> None:
    """List every weight as an input whose default it is, as old exporters do."""
    for tensor in model.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, 1, tensor.dims)
        model.graph.input.append(info)


def in_a_branch(model: onnx.ModelProto) -> None:
    """Put the product into a branch of an If, which alone needs the large weight."""
    graphs = {}
    for name, op, inputs in (("then_branch", "MatMul", "xw"), ("else_branch", "Neg", "x")):
        output = onnx.helper.make_tensor_value_info(f"h_{name}", 1, [1, SIZE])
        node = onnx.helper.make_node(op, list(inputs), [output.name])
        graphs[name] = onnx.helper.make_graph([node], name, [], [output])
    model.graph.input.append(onnx.helper.make_tensor_value_info("yes", 9, []))
    model.graph.node[0].CopyFrom(onnx.helper.make_node("If", ["yes"], ["h"], **graphs))


@pytest.mark.parametrize("change", [lambda model: None, old_export, in_a_branch])
def test_large_weights_go_into_another_file(change, model, tmp_path):
    change(model)
    inputs = random_inputs(model)
    path, again = tmp_path / "large.onnx", tmp_path / "again.onnx"
    save(read(model), path, max_embedded_bytes=1000)
    assert path.stat().st_size < 2000
    names = names_in(tmp_path)
    assert len(names) == 2 and names[0] == "large.onnx" and names[1].endswith(".data")
    onnx.checker.check_model(str(path), full_check=True)
    save(read(path), again)
    for written in (path, again):
        assert equal(run(model, inputs), run(written, inputs))
    assert again.stat().st_size > 4 * SIZE * SIZE


def test_a_file_takes_the_place_of_the_one_that_it_was_read_from(model, external):
    """Its weights are read from the old file while the new one is written."""
    save(read(external), external, max_embedded_bytes=1000)
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(external, inputs))


def test_a_directory_that_is_not_there(model, tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        save(read(model), tmp_path / "none" / "model.onnx")
    assert not names_in(tmp_path)


def test_what_is_refused_is_not_written(model, external, elsewhere):
    """An earlier file with the same data keeps them."""
    path, inputs = elsewhere / "large.onnx", random_inputs(model)

    def refuse(written: pathlib.Path) -> None:
        assert equal(run(model, inputs), run(written, inputs))  # It is complete.
        raise UserError("refused")

    for num_files in (0, 2):
        with pytest.raises(UserError, match="refused"):
            copy(external, path, check_fn=refuse)
        assert len(names_in(elsewhere)) == 1 + num_files
        copy(external, path)
    assert equal(run(model, inputs), run(path, inputs))


@pytest.mark.parametrize(
    "write_fn",
    [
        lambda source, path: save(read(source), path, 1000),
        lambda source, path: save(read(source), path),
        copy,
    ],
)
def test_a_disk_that_takes_no_more(write_fn, external, elsewhere):
    out = elsewhere / "m.onnx"
    out.write_text("precious")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"m.onnx: cannot be written: File too large"):
            write_fn(external, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names_in(elsewhere) == ["data", "m.onnx"] and out.read_text() == "precious"


def behind_a_link(weights: pathlib.Path) -> None:
    weights.rename(weights.parent.parent / "elsewhere.bin")
    weights.symlink_to(weights.parent.parent / "elsewhere.bin")


def at(offset: str) -> Callable[[pathlib.Path], None]:
    """Make what gives the weights another place in their file."""

    def change(weights: pathlib.Path) -> None:
        path = weights.with_name("external.onnx")
        broken = onnx.load(path, load_external_data=False)
        for tensor in broken.graph.initializer:
            next(entry for entry in tensor.external_data if entry.key == "offset").value = offset
        path.write_bytes(broken.SerializeToString())

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (behind_a_link, "outside of the model's directory"),
        (lambda weights: weights.write_bytes(b"1234"),
         r"tensor 'w' of shape \[128, 128\]: expected 65536 bytes"),
        (pathlib.Path.unlink, r"tensor 'w': its data are in the file 'w.bin', which is"),
        (at("-4"), "the model is damaged"),
        (at("many"), "the model is damaged"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_read(external, tmp_path, spoil, message):
    spoil(tmp_path / "w.bin")
    with pytest.raises(UserError, match=message):
        read(external)


def test_external_weights_need_a_file(external):
    broken = onnx.load(external, load_external_data=False)
    with pytest.raises(UserError, match="give the path of the model"):
        read(broken)


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


@pytest.mark.parametrize("place", MODELS)
def test_data_come_along_and_are_used_beside_the_source(place, tmp_path, elsewhere):
    source = external_data.write(MODELS[place], tmp_path / "source")
    beside, copied, saved = (
        *(directory / "copy.onnx" for directory in (source.parent, elsewhere)),
        elsewhere / "saved.onnx",
    )
    copy(source, beside)
    assert names_in(source.parent) == ["copy.onnx", "data", "m.onnx"]
    assert run(beside, {"x": X})[0].tolist() == PRODUCT
    copy(source, copied)
    save(read(source), saved, max_embedded_bytes=0)
    shutil.rmtree(source.parent)
    for path in (copied, saved):
        assert run(path, {"x": X})[0].tolist() == PRODUCT
    assert (elsewhere / "data" / "w.bin").read_bytes() == b"precious" * 99


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


def test_the_same_bytes_at_other_places_get_another_name(tmp_path):
    """Two rows of 1,024 numbers, or a matrix of both: what is written is not the same."""
    rows = np.arange(2048, dtype=np.float32).reshape(2, 1024)
    apart = with_weights(
        """g (float[1,1024] x, float[1,1024] a, float[1,1024] b)
            => (float[1,1024] y, float[1,1024] z) { y = Add(x, a) z = Add(x, b) }""",
        a=rows[:1],
        b=rows[1:],
    )
    text = "g (float[1,1024] x, float[2,1024] a) => (float[2,1024] y) { y = Add(x, a) }"
    for model in (apart, with_weights(text, a=rows)):
        save(read(model), tmp_path / "m.onnx", max_embedded_bytes=0)
    assert len(names_in(tmp_path)) == 3
