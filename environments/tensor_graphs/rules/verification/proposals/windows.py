"""Proposals for convolutions and pools, which move a window over an image."""

from __future__ import annotations

from collections.abc import Sequence

from environments.tensor_graphs.rules.verification.draws import Draw, ImpossibleError, Shape, Use


def conv(use: Use) -> None:
    """Propose a weight and an image that fit each other, groups, and a window."""
    draw, rng = use.draw, use.draw.rng
    data, weight = use.shapes[:2]
    spatial = _spatial(use, ())
    kernel = tuple(weight[2:]) if weight is not None else use.attributes.get("kernel_shape")
    if kernel is None:
        kernel = draw.like_before(
            ("kernel", spatial),
            lambda: (
                (1,) * spatial
                if draw.chance(0.3)
                else tuple(rng.choice((1, 2, 3, 3)) for _ in range(spatial))
            ),
        )
    least = _window(use, spatial, kernel)
    if data is not None and weight is not None:
        groups = data[1] // weight[1] if len(data) > 1 and len(weight) > 1 else 1
    elif data is not None and len(data) > 1:
        groups = rng.choice([1, *(k for k in range(1, data[1] + 1) if data[1] % k == 0)])
    else:
        groups = rng.choice((1, 1, 2, 3))
    groups = use.choose("group", lambda: groups, alike=False)
    per_group = draw.size()
    if data is not None and len(data) > 1:
        per_group = max(1, data[1] // groups)
    elif weight is not None and len(weight) > 1:
        per_group = weight[1]
    channels = draw.size() * groups
    weight = use.propose(1, (channels, per_group, *kernel))
    batch, sizes = draw.like_before(("image", spatial), lambda: _image(draw, least))
    use.propose(0, (batch, per_group * groups, *map(max, sizes, least)))
    use.propose(2, weight[:1])


def conv_transpose(use: Use) -> None:
    """Propose the same as for a convolution, with the weight's two axes of channels exchanged."""
    draw, rng = use.draw, use.draw.rng
    spatial = _spatial(use, ())
    kernel = tuple(rng.choice((1, 2, 3)) for _ in range(spatial))
    _window(use, spatial, kernel)
    groups = use.choose("group", lambda: rng.choice((1, 1, 2)), alike=False)
    use.choose("output_padding", lambda: (0,) * spatial)
    data = use.propose(0, (draw.size(), draw.size() * groups, *draw.shape(spatial)))
    weight = use.propose(1, (data[1], draw.size(), *kernel))
    use.propose(2, (weight[1] * groups,))


def pool(use: Use) -> None:
    """Propose a window and an image that it fits into."""
    draw, rng = use.draw, use.draw.rng
    spatial = _spatial(use, None)
    kernel = use.choose(
        "kernel_shape", lambda: tuple(rng.choice((1, 2, 3)) for _ in range(spatial))
    )
    if len(kernel) != spatial:
        raise ImpossibleError
    least = _window(use, spatial, kernel)
    use.choose("ceil_mode", lambda: int(draw.chance(0.2)))
    use.choose("count_include_pad", lambda: int(draw.chance(0.5)))
    batch, sizes = draw.like_before(("image", spatial), lambda: _image(draw, least))
    use.propose(0, (batch, draw.size(), *map(max, sizes, least)))


def global_pool(use: Use) -> None:
    """Propose an image with one to three spatial axes."""
    use.of_rank(0, use.draw.rng.choice((3, 4, 4, 5)))


def _spatial(use: Use, kernel: Sequence[int] | None) -> int:
    """Return the number of spatial axes: a known one, or one drawn at random.

    Args:
      use: the use of the operator.
      kernel: None if the first input's shape alone may tell the number; () if the weight's may.
    """
    for shape in use.shapes[:1] if kernel is None else (use.shapes[0], use.shapes[1]):
        if shape is not None:
            return len(shape) - 2
    for name, per_dimension in (("strides", 1), ("kernel_shape", 1), ("dilations", 1), ("pads", 2)):
        if name in use.attributes:
            return len(use.attributes[name]) // per_dimension
        if name in use.lengths:
            return use.lengths[name] // per_dimension
    return int(use.draw.like_before("spatial", lambda: use.draw.rng.choice((1, 2, 2, 2, 2, 3))))


def _window(use: Use, spatial: int, kernel: Sequence[int]) -> Shape:
    """Choose strides, dilations and pads; return the smallest sizes of an image that they allow."""
    draw, rng = use.draw, use.draw.rng
    if spatial < 1:
        raise ImpossibleError
    strides = [1] * spatial if draw.chance(0.6) else [rng.choice((1, 2, 3)) for _ in kernel]
    use.choose("strides", lambda: tuple(strides))
    dilations = [1] * spatial if draw.chance(0.7) else [rng.choice((1, 2)) for _ in kernel]
    dilations = use.choose("dilations", lambda: tuple(dilations))
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=False)]
    pads = rng.choice(
        [
            (0,) * (2 * spatial),
            tuple(size // 2 for size in reach) * 2,
            tuple(rng.randint(0, max(0, size - 1)) for size in (*reach, *reach)),
        ]
    )
    pads = use.choose("pads", lambda: pads, alike=draw.chance(0.5))
    if len(pads) != 2 * spatial or len(reach) != spatial:
        raise ImpossibleError
    return tuple(max(1, reach[k] - pads[k] - pads[k + spatial]) for k in range(spatial))


def _image(draw: Draw, least: Sequence[int]) -> tuple[int, Shape]:
    """Draw the number of images and their sizes, which are at least `least`."""
    return draw.size(), tuple(size + draw.rng.choice((0, 0, 1, 2, 3)) for size in least)
