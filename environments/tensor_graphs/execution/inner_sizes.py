"""Find the sizes of inner values that no formula gives, by running the model once.

The output of a Resize or a NonZero has sizes that are not computed from those of the inputs. Costs
of what follows depend on them all the same: in a detector that may be most of the model.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.operators import dimensions


def with_inner_sizes(graph: Graph, sizes: Sizes, inputs: Arrays, on: Backend) -> Sizes:
    """Return sizes with the symbols of inner values too, as a run on some inputs shows them.

    They stay as they are if all symbols are known, or if the model does not run with the values
    that have them as its outputs.
    """
    places = _places(graph, {symbol for symbol, _ in sizes.symbols})
    if not places:
        return sizes
    refs = list(dict.fromkeys(ref for ref, _ in places.values()))
    names = [f"tfrl_inner_{number}" for number in range(len(refs))]
    edit = graph.edit()
    edit.set_outputs([*graph.outputs, *refs], [*graph.output_names, *names])
    exposed, _ = edit.finish()
    exposed.header = graph.header
    with tempfile.TemporaryDirectory(prefix="tfrl-") as directory:
        path = pathlib.Path(directory) / "exposed.onnx"
        try:
            save(exposed, path)
            outputs = on.open(path).run(inputs)
        except UserError:
            return sizes
    shapes = {ref: outputs[name].shape for ref, name in zip(refs, names, strict=True)}
    inner_sizes = [(symbol, shapes[ref][axis]) for symbol, (ref, axis) in places.items()]
    return dataclasses.replace(sizes, symbols=(*sizes.symbols, *inner_sizes))


def _places(graph: Graph, input_symbols: set[str]) -> dict[str, tuple[Ref, int]]:
    """Return a value and an axis that has it, for each symbol that is not known."""
    places: dict[str, tuple[Ref, int]] = {}
    for number in graph.order():
        if graph.nodes[number].op == INPUT or graph.is_constant(number):
            continue
        for output, kind in enumerate(graph.nodes[number].types):
            for axis, size in enumerate((kind.shape if kind is not None else None) or ()):
                if isinstance(size, str) and size not in input_symbols and dimensions.is_name(size):
                    places.setdefault(size, (Ref(number, output), axis))
    return places
