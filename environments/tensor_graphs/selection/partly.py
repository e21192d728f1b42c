"""A model some of whose nodes are quantised, out of one with all of them quantised.

onnxruntime's functions take seconds for a large model, most of them for its weights, which get the
same numbers whatever is quantised beside them. So they run once. What stays as it was gets back its
node, and a tensor is rounded only where a quantised node makes or uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx

# What onnxruntime adds to a tensor's name once it was rounded.
_ROUNDED = "_DequantizeLinear_Output"


def with_nodes(
    plain: onnx.ModelProto, quantised: onnx.ModelProto, nodes: Collection[str]
) -> onnx.ModelProto:
    """Return the quantised model with only some of its nodes quantised.

    Args:
      plain: the model before; its nodes have names.
      quantised: what `quantize_dynamic` or `quantize_static` (in its QDQ format) made of it.
      nodes: names of the nodes that stay quantised.
    """
    nodes = frozenset(nodes)
    rounded = {
        name
        for node in plain.graph.node
        if node.name in nodes
        for name in (*node.input, *node.output)
    }
    makers = {name: node for node in quantised.graph.node for name in node.output}
    weights = {weight.name: weight for weight in quantised.graph.initializer}
    for weight in plain.graph.initializer:
        if weight.name not in rounded:
            weights[weight.name] = weight
            # A bias that was quantised has its own name again in the end.
            makers.pop(weight.name, None)
    for node in plain.graph.node:
        if node.name not in nodes:
            restored = onnx.NodeProto()
            restored.CopyFrom(node)
            for place, name in enumerate(node.input):
                if name in rounded and name + _ROUNDED in makers:
                    restored.input[place] = name + _ROUNDED
            makers.update(dict.fromkeys(filter(None, node.output), restored))
    model = onnx.ModelProto(ir_version=quantised.ir_version)
    model.opset_import.extend(quantised.opset_import)
    model.functions.extend(quantised.functions)
    model.graph.name = quantised.graph.name
    model.graph.input.extend(quantised.graph.input)
    model.graph.output.extend(quantised.graph.output)
    outputs = [output.name for output in quantised.graph.output]
    model.graph.node.extend(_ordered(outputs, makers))
    used = {name for node in model.graph.node for name in _used(node)} | {*outputs}
    model.graph.initializer.extend(weight for name, weight in weights.items() if name in used)
    return model


def _ordered(
    outputs: Iterable[str], makers: Mapping[str, onnx.NodeProto]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that outputs need, each after those whose results it uses."""
    done: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting[-1]
        node = makers.get(name)
        if node is None or name in done:
            waiting.pop()
            continue
        missing = [used for used in _used(node) if used in makers and used not in done]
        if missing:
            waiting += missing
            continue
        yield node
        done.update(node.output)


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of what a node uses, and its graphs, if it has any."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _used(inner)
            yield from (output.name for output in graph.output)
