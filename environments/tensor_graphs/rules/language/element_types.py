"""Groups of element types: a rule is right for a whole group, or not for it.

Numbers of floating-point types behave almost like real numbers. Integers wrap around, and their
quotients are cut, so that few equalities of real numbers hold for them; unsigned ones have no
negatives. What is no number, such as a truth value or a text, is only moved and chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Expression,
    Variable,
    parts,
)

FLOAT, SIGNED, UNSIGNED, OTHER = GROUPS = ("float", "signed", "unsigned", "other")

_PREFIXES = {"float": FLOAT, "bfloat": FLOAT, "int": SIGNED, "uint": UNSIGNED}

# Inputs of operators whose element type differs from that of the others.
_SPECIAL = {
    ("Where", 0): "bool",
    ("Gather", 1): "int64",
    **{(op, place): "bool" for op in ("And", "Or", "Xor", "Not") for place in (0, 1)},
}


def group_of(dtype: str) -> str:
    """Return the group of an element type, by its name ("float32", "uint8")."""
    return _PREFIXES.get(dtype.rstrip("0123456789"), FLOAT if dtype.startswith("float") else OTHER)


def special_types(sources: Sequence[Expression]) -> dict[str, str]:
    """Return the variables that have an element type of their own, with that type.

    Examples are the condition of Where and the indices of Gather.
    """
    return {
        operand.name: _SPECIAL[part.op, place]
        for source in sources
        for part in parts(source)
        if isinstance(part, Apply)
        for place, operand in enumerate(part.inputs)
        if isinstance(operand, Variable) and (part.op, place) in _SPECIAL
    }
