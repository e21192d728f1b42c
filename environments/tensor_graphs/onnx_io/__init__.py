"""Read and write ONNX models: `read` turns a model into a graph, `write` and `save` do the reverse.

Reading, top down (`reading/`):

    path, bytes or ModelProto
      │  loading        parse, embed tensors that nodes hold, inline the model's functions
      │  wiring         constants, inputs, and nodes in an order to compute them
      │  inference      types of all values; of operators that onnx does not have, as onnxruntime
      │                 knows them, and whether it loads a model that onnx refuses
      │  reader         node by node, each by the first of these that fits:
      │    bodies         an If, Loop or Scan, with all nodes of its bodies
      │    shape_values   a value computed from sizes becomes a constant
      │    canonical      an operator of `operators.table` gets its one form
      │    opaque         any other operator is kept to be written as it was (`opaque_values`)
      ▼
    Graph, with a ModelHeader: the file's names, versions and documentation

Writing, top down (`writing/`):

    Graph
      │  placing        which nodes are the model's own, and which are in a body
      │  writer         node by node, with the file's names, documentation and metadata:
      │    folding        values that depend on constants alone are computed
      │    lowering       a canonical node becomes ONNX's nodes of the header's opset
      │    opaque         an Opaque node becomes the node that it was
      ▼
    ModelProto
      │  saving         large weights go into a file beside the model's; both are complete before
      │                 they take their place
      ▼
    file

`saving` also copies files that need no rewriting. Both sides share `older_forms` (what older opsets
write in another way), `tensors` (arrays and ONNX's tensors), `scopes` (names and tensors within
subgraphs), `bodies`, `header` and `opaque`. `parts` makes models of a few nodes of a graph, to
measure them.
"""

from environments.tensor_graphs.onnx_io.header import ModelHeader
from environments.tensor_graphs.onnx_io.parts import part_model
from environments.tensor_graphs.onnx_io.reading.graph_builder import OLDEST_OPSET
from environments.tensor_graphs.onnx_io.reading.loading import file_names
from environments.tensor_graphs.onnx_io.reading.reader import read
from environments.tensor_graphs.onnx_io.writing.saving import copy, save
from environments.tensor_graphs.onnx_io.writing.writer import write

__all__ = [
    "OLDEST_OPSET",
    "ModelHeader",
    "copy",
    "file_names",
    "part_model",
    "read",
    "save",
    "write",
]
