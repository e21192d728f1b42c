"""Add nodes of onnxruntime's own domain in their canonical form; see `operators.contrib`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.tensor_graphs.onnx_io.reading.graph_builder import (
    GraphBuilder,
    NotCanonicalError,
    Refs,
    SourceNode,
)
from environments.tensor_graphs.operators.contrib import FORMS
from environments.tensor_graphs.operators.table import OPERATORS

OPERATORS_OF_DOMAIN = frozenset(form.op for form in FORMS.values())

# Where the node's own defaults differ from those of the canonical form.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Attention": {"scale": 0.0},
    "MultiHeadAttention": {"scale": 0.0},
    "QuickGelu": {"alpha": 1.702},
    "SkipLayerNormalization": {"epsilon": 1e-12},
}
# Attributes without a canonical form, and the values with which they may be left out; any value of
# those with None.
_WITHOUT_EFFECT: Mapping[str, float | None] = {
    "mask_filter_value": None,
    "transBatchA": 0,
    "transBatchB": 0,
    "unidirectional": 0,
}


def add_contrib(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a node of onnxruntime's own domain; return its outputs, in the node's order.

    Raises:
      NotCanonicalError: the node has no canonical form.
    """
    op = _canonical_name(node)
    form = FORMS[op]
    values = {**_DEFAULTS.get(node.op, {}), **node.attributes}
    for name in set(values) - set(OPERATORS[op].attributes):
        value = values.pop(name)
        if name not in _WITHOUT_EFFECT or _WITHOUT_EFFECT[name] not in (None, value):
            raise NotCanonicalError
    refs = [ref for ref in map(node.input, form.inputs) if ref is not None]
    if refs != [node.input(place) for place in form.inputs[: len(refs)]]:
        raise NotCanonicalError
    try:
        if not values.get("scale", 1.0):
            place, parts = (1, 3) if op == "Attention" else (0, 1)
            width = builder.shape_of(refs[place])[-1] / parts
            values["scale"] = (width / values["num_heads"]) ** -0.5
        added = builder.add(op, *refs, **values)
    except (LookupError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        raise NotCanonicalError from None
    by_place = dict(zip(form.outputs, added, strict=True))
    return tuple(by_place.get(place, added[0]) for place in range(max(form.outputs) + 1))


def _canonical_name(node: SourceNode) -> str:
    """Return the name of the first form that has all of a node's inputs and outputs.

    Raises:
      NotCanonicalError: none has.
    """
    inputs = {place for place, ref in enumerate(node.inputs) if ref is not None}
    outputs = {place for place, name in enumerate(node.output_names) if name}
    for op, form in FORMS.items():
        if form.op == node.op and inputs <= {*form.inputs} and outputs <= {*form.outputs}:
            return op
    raise NotCanonicalError
