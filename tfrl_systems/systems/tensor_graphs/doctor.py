"""What `tfrl doctor` tries of tensor graphs: that ONNX files are read, written and run."""

from __future__ import annotations

from tfrl_systems.training.system import Check

_PROBE_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
probe (float[2] x) => (float[2] y) { y = Relu(x) }"""


def check_onnx() -> Check:
    """Read, write and run a small model."""
    name = "ONNX"
    try:
        import onnx
        import onnxruntime

        from environments.tensor_graphs.onnx_io import OLDEST_OPSET, read, write

        written = write(read(onnx.parser.parse_model(_PROBE_MODEL)))
        providers = onnxruntime.get_available_providers()
        session = onnxruntime.InferenceSession(written.SerializeToString(), providers=providers)
        (result,) = session.run(None, {"x": [-1.0, 2.0]})
    except Exception as error:  # onnxruntime's exceptions have no common base class
        remedy = "install them again: pip install --force-reinstall onnx onnxruntime"
        return Check(name, False, True, " ".join(str(error).split()), remedy)
    newest = onnx.defs.onnx_opset_version()
    opsets, by = f"{OLDEST_OPSET} to {newest}", ", ".join(providers)
    text = f"models of opset {opsets} are read, written and run by {by}"
    return Check(name, result.tolist() == [0.0, 2.0], True, text)
