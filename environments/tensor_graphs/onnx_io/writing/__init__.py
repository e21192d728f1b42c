"""From a graph to an ONNX model (`writer.write`), and on to a file (`saving.save`)."""
