"""The operators of TASO's generator, from which the thesis takes its substitutions (section 3.1).

The thesis names no operators; it takes over TASO's. Those are the ones of TASO's
`src/generator/generator.cc` (commit 90150c0), which goes up to three operators: products of
matrices, sums and products by element, convolutions that keep the size of an image, pools of 3 x 3,
Relu, Concat and Split along the first two axes, transposes of matrices, larger kernels, and
constants. It differs here:

- Matrices and images have a vocabulary each, because no operator takes both.
- TASO has one world, of tensors with 4 x 4 or 4 x 4 x 5 x 5 elements. There are several here, of at
  most 4 x 4 x 4 x 4 elements (the thesis's limit), so that rules which need equal sizes are told
  from those that do not.
- Relu of a convolution is two operators here, and TASO's one. A convolution's strides, pads and
  dilations are names, and TASO's numbers. TASO's grouped convolutions are left out.
- Left out: the identity matrix, which no array of our language makes, and the kernel of a pool,
  whose 1 / 9 is no float and so no number of `operators.field`.
- Sums, products by element and Concat have two different operands, as there. But there an operator
  that occurs twice is one, and here it counts twice.
- A Split cuts where one of two pairs of operands would. TASO's cuts where its input was joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.tensor_graphs.rules.generation.enumerate import Move
from environments.tensor_graphs.rules.generation.vocabularies import (
    Shapes,
    Vocabulary,
    make_leaves,
    make_moves,
)
from environments.tensor_graphs.rules.verification.draws import Draw


def _taso_matrix_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    """Matrices of sizes from 2 to 4: all square, or apart in what a concatenation lets differ."""
    rows, inner, columns, more = (draw.rng.randint(2, 4) for _ in range(4))
    shapes = {"x": (rows, inner), "y": (rows, inner), "w": (inner, columns), "v": (inner, columns)}
    kind = draw.rng.choice(("square",) * 3 + ("rows", "columns", "inner", "chain", "equal"))
    if kind == "square":
        shapes = dict.fromkeys(shapes, (inner, inner))
    elif kind == "rows":
        shapes["y"] = (more, inner)
    elif kind == "columns":
        shapes["v"] = (inner, more)
    elif kind == "inner":
        shapes |= {"y": (rows, more), "v": (more, columns)}
    elif kind == "chain":
        shapes["v"] = (columns, more)
    return {**shapes, "c": ()}, {}


def _taso_image_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    """Images and kernels of at most 4 x 4 x 4 x 4, padded so that a convolution keeps the size."""
    more, channels = draw.rng.randint(2, 4), draw.rng.randint(2, 4)
    sizes = draw.rng.randint(3, 4), draw.rng.randint(3, 4)
    kernel = draw.rng.choice(((3, 3), (3, 3), (1, 3), (3, 1), (1, 1)))
    image, weight = (2, channels, *sizes), (channels, channels, *kernel)
    shapes = {"x": image, "y": image, "w": weight, "v": weight}
    kind = draw.rng.choice(("equal",) * 3 + ("batches", "channels", "kernels", "enlarged"))
    if kind == "batches":
        shapes["y"] = (3, *image[1:])
    elif kind == "channels":
        shapes |= {"y": (2, more, *sizes), "v": (channels, more, *kernel)}
    elif kind == "kernels":
        shapes["v"] = (more, *weight[1:])
    elif kind == "enlarged":
        kernel = (1, 1)
        shapes |= {"w": (*weight[:2], 1, 1), "v": (*weight[:2], 3, 3)}
    pads = (kernel[0] // 2, kernel[1] // 2) * 2
    attributes = {"p": pads, "s": (1, 1), "d": (1, 1), "i": draw.rng.randint(0, 1)}
    return {**shapes, "c": ()}, {**attributes, "k": (3, 3), "q": (1, 1, 1, 1)}


_STEPS: dict[str, Any] = {"strides": "$s", "dilations": "$d"}
_POOL_3: dict[str, Any] = {"kernel_shape": "$k", "strides": "$s", "pads": "$q"}
_CUTS = {
    axis: [f"(list (dim {a} {place}) (dim {b} {place}))" for a, b, place in parts]
    for axis, parts in {
        "matrix 0": (("?x", "?y", 0), ("?w", "?v", 0)),
        "matrix 1": (("?x", "?y", 1), ("?w", "?v", 1)),
        "image 0": (("?x", "?y", 0),),
        "image 1": (("?x", "?y", 1), ("?w", "?v", 0)),
    }.items()
}
_WIDER = f"(list {' '.join(f'(+ (nth $p {side}) 1)' for side in range(4))})"
_IMAGES = make_leaves("?x", "?y")
_KERNELS = make_leaves("?w", "?v", "(identity_kernel (dim ?x 1) 1 2 (dtype ?x))")
_NUMBERS = make_leaves("?c", "(full 1.0 (list) (dtype ?x))")


def _joined_and_cut(kind: str) -> list[Move]:
    """Return the moves that join two tensors, and cut them where two were joined."""
    return [
        *make_moves("Concat", 2, is_distinct=True, axis=["0", "1"]),
        *make_moves("Split", outputs=2, axis="0", split=_CUTS[f"{kind} 0"]),
        *make_moves("Split", outputs=2, axis="1", split=_CUTS[f"{kind} 1"]),
    ]


TASO: tuple[Vocabulary, ...] = (
    Vocabulary(
        "taso matrices",
        (*make_leaves("?x", "?y", "?w", "?v"), *_NUMBERS),
        (
            *make_moves("MatMul", 2),
            *make_moves("Add Mul", 2, is_distinct=True),
            *make_moves("Relu", 1, 1, _NUMBERS),
            *make_moves("Transpose", perm="(list 1 0)"),
            *_joined_and_cut("matrix"),
        ),
        _taso_matrix_world,
        num_worlds=16,
        is_exhaustive=True,
        ranks=dict.fromkeys("xywv", 2),
    ),
    Vocabulary(
        "taso images",
        (*_IMAGES, *_KERNELS, *_NUMBERS),
        (
            *make_moves("Conv", 2, 1, _KERNELS, pads=["$p", _WIDER], **_STEPS),
            *make_moves("AveragePool", 1, 1, _KERNELS, count_include_pad="$i", **_POOL_3),
            *make_moves("MaxPool", 1, 1, _KERNELS, **_POOL_3),
            *make_moves("Pad", 1, 1, _IMAGES, pads="(list 0 0 1 1 0 0 1 1)"),
            *make_moves("Add Mul", 2, is_distinct=True),
            *make_moves("Relu", 1, 1, _NUMBERS),
            *_joined_and_cut("image"),
        ),
        _taso_image_world,
        num_worlds=12,
        is_exhaustive=True,
        ranks=dict.fromkeys("xywv", 4),
    ),
)
