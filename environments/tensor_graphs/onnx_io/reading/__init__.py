"""From an ONNX model to a graph (`reader.read`)."""
