"""ONNX models in and out: `read` makes a graph, `write` and `save` make a model of one."""

from environments.tensor_graphs.onnx_io.header import ModelHeader
from environments.tensor_graphs.onnx_io.one_node import one_node_model, part_model
from environments.tensor_graphs.onnx_io.reading import read
from environments.tensor_graphs.onnx_io.saving import save
from environments.tensor_graphs.onnx_io.writing import write

__all__ = ["ModelHeader", "one_node_model", "part_model", "read", "save", "write"]
