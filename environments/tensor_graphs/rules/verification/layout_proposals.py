"""Proposals for operators that only move elements."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from environments.tensor_graphs.rules.verification.draws import (
    MAX_RANK,
    Draw,
    Shape,
    Use,
    any_axis,
    check,
)

_TRIES_TO_CHANGE = 3


def concat(use: Use) -> None:
    """Propose tensors that differ along one axis only."""
    draw = use.draw
    known_shape = next((shape for shape in use.shapes if shape is not None), None)
    base = list(known_shape if known_shape is not None else draw.shape(least=1))
    axis = use.choose("axis", lambda: any_axis(draw, len(base)))
    check(-len(base) <= axis < len(base))
    for place in range(len(use.shapes)):
        sizes = list(base)
        sizes[axis] = base[axis] if draw.chance(0.4) else draw.size()
        use.propose(place, sizes)


def split(use: Use) -> None:
    """Propose parts that are often equal, and often not."""
    draw = use.draw
    usual = max(2, use.num_outputs) + (0 if draw.chance(0.7) else 1)
    outputs = use.lengths.get("split", usual)
    parts = use.attributes.get("split")
    drawn = list(draw.shape(least=1) if use.shapes[0] is None else use.shapes[0])
    axis = use.choose("axis", lambda: any_axis(draw, len(drawn)))
    check(-len(drawn) <= axis < len(drawn))
    drawn[axis] = sum(parts or [draw.size() for _ in range(outputs)])
    data = use.propose(0, drawn)
    use.choose("split", lambda: _partition(draw, data[axis], outputs, use.elements["split"]))


def _partition(draw: Draw, total: int, parts: int, fixed: Mapping[int, int]) -> Shape:
    """Draw sizes that sum up to a total, some of which are known."""
    fixed = {place: size for place, size in fixed.items() if place < parts}
    free, rest = parts - len(fixed), total - sum(fixed.values())
    check(rest >= free and (free > 0 or not rest))
    if free and rest % free == 0 and draw.chance(0.5):
        others = [rest // free] * free
    else:
        cuts = sorted(draw.rng.sample(range(1, rest), free - 1)) if free else []
        ends = [0, *cuts, *([rest] if free else [])]
        others = [after - before for before, after in zip(ends, ends[1:], strict=False)]
    return tuple(fixed[place] if place in fixed else others.pop() for place in range(parts))


def slice_(use: Use) -> None:
    """Propose starts and ends inside the tensor."""
    draw, rng = use.draw, use.draw.rng
    data = use.of_rank(0)
    lists = [use.attributes[name] for name in ("axes", "starts", "ends") if name in use.attributes]
    count = len(lists[0]) if lists else use.lengths.get("axes", rng.randint(1, len(data)))
    check(count <= len(data))
    axes = use.choose("axes", lambda: tuple(sorted(rng.sample(range(len(data)), count))))
    check(all(-len(data) <= axis < len(data) for axis in axes))
    steps = use.choose("steps", lambda: tuple(1 if draw.chance(0.7) else 2 for _ in axes))
    starts = use.choose("starts", lambda: tuple(rng.randrange(data[axis]) for axis in axes))
    use.choose("ends", lambda: _ends(draw, data, axes, starts))
    check(len(steps) == len(axes))


def _ends(draw: Draw, data: Shape, axes: Sequence[int], starts: Sequence[int]) -> Shape:
    pairs = zip(axes, starts, strict=False)
    return tuple(
        draw.rng.randint(start + 1, max(start + 1, data[axis])) if start >= 0 else data[axis]
        for axis, start in pairs
    )


def transpose(use: Use) -> None:
    """Propose any permutation, and now and then the inverse of an earlier one."""
    rng = use.draw.rng
    perm = use.attributes.get("perm")
    rank = len(perm) if perm is not None else use.lengths.get("perm")
    data = use.of_rank(0, rank)

    def choose() -> Shape:
        usual = use.draw.like_before(("perm", len(data)), lambda: _permutation(rng, len(data)))
        if use.draw.chance(0.3):
            return tuple(sorted(range(len(data)), key=usual.__getitem__))
        return usual

    use.choose("perm", choose, alike=False)


def _permutation(rng: random.Random, rank: int) -> Shape:
    order = list(range(rank))
    if rank > 1 and rng.random() < 0.3:
        order[-2:] = order[-1], order[-2]
    else:
        rng.shuffle(order)
    return tuple(order)


def reshape(use: Use) -> None:
    """Propose another shape with as many elements."""
    shape = use.attributes.get("shape")
    data = use.of_rank(0) if shape is None else use.propose(0, _regrouped(use.draw, shape))
    drawn = (_regrouped(use.draw, data) for _ in range(_TRIES_TO_CHANGE))
    use.choose(
        "shape", lambda: next((option for option in drawn if option != data), data), alike=False
    )


def _regrouped(draw: Draw, shape: Shape) -> Shape:
    """Draw a shape with as many elements: merge, divide and move sizes, add and drop ones."""
    result: list[int] = []
    for size in shape:
        divisors = [k for k in range(2, size) if size % k == 0]
        if size == 1 and draw.chance(0.5):
            continue
        if divisors and draw.chance(0.3):
            first = draw.rng.choice(divisors)
            result += [first, size // first]
        elif result and draw.chance(0.3):
            result[-1] *= size
        else:
            result.append(size)
    while len(result) < MAX_RANK and (not result or draw.chance(0.3)):
        result.insert(draw.rng.randint(0, len(result)), 1)
    if draw.chance(0.2):
        draw.rng.shuffle(result)
    return tuple(result)


def pad(use: Use) -> None:
    """Propose pads of up to two elements."""
    rng = use.draw.rng
    pads = use.attributes.get("pads")
    data = use.of_rank(0, None if pads is None else len(pads) // 2)
    choices = (0,) if use.draw.chance(0.25) else (0, 0, 1, 2)
    use.choose("pads", lambda: tuple(rng.choice(choices) for _ in range(2 * len(data))))
    use.choose("value", lambda: 0.0 if use.draw.chance(0.6) else use.draw.number())


def expand(use: Use) -> None:
    """Propose a shape in which sizes of 1 grow, sometimes with further axes in front."""
    draw = use.draw
    shape = use.attributes.get("shape")
    data = use.of_rank(0, least=0) if shape is None else use.propose(0, draw.partner(shape))
    wider = [draw.size() if size == 1 or draw.chance(0.1) else size for size in data]
    use.choose("shape", lambda: (*draw.shape(draw.rng.choice((0, 0, 1))), *wider))


def tile(use: Use) -> None:
    """Propose up to three repeats along each axis."""
    data = use.of_rank(0)
    use.choose("repeats", lambda: tuple(use.draw.rng.choice((1, 2, 3)) for _ in data))


def gather(use: Use) -> None:
    """Propose any axis, and indices of rank 0 to 2."""
    data = use.of_rank(0)
    use.choose("axis", lambda: any_axis(use.draw, len(data)))
    use.propose(1, use.draw.shape(use.draw.rng.choice((0, 1, 1, 2))))


def blocks(use: Use) -> None:
    """Propose blocks and a fitting image for DepthToSpace and SpaceToDepth."""
    draw = use.draw
    size = use.choose("blocksize", lambda: draw.rng.choice((1, 2, 3)))
    batch, channels, height, width = draw.shape(4)
    if use.op == "DepthToSpace":
        use.choose("mode", lambda: draw.rng.choice(("DCR", "CRD")))
        use.propose(0, (batch, channels * size * size, height, width))
    else:
        use.propose(0, (batch, channels, height * size, width * size))


def shape_of(use: Use) -> None:
    """Propose which part of the shape the operator Shape returns."""
    data = use.of_rank(0)
    start = use.choose("start", lambda: use.draw.rng.randint(0, len(data)))
    use.choose("end", lambda: use.draw.rng.randint(min(start, len(data)), len(data)))
