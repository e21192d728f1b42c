"""Proposals for operators that summarise or normalise along axes."""

from __future__ import annotations

from environments.tensor_graphs.rules.verification.draws import ImpossibleError, Use, any_axis

_EPSILONS = (2.0**-17, 2.0**-10, 0.125, 2.0**-20)


def reduce(use: Use) -> None:
    """Propose any axes for a reduction."""
    rng = use.draw.rng
    data = use.of_rank(0)
    if not data:
        raise ImpossibleError
    count = use.lengths.get("axes", rng.randint(1, len(data)))
    if count > len(data):
        raise ImpossibleError
    use.choose("axes", lambda: tuple(sorted(rng.sample(range(len(data)), count))))
    use.choose("keepdims", lambda: int(use.draw.chance(0.5)))


def with_axis(use: Use) -> None:
    """Propose an axis for operators with one axis, such as Softmax and ArgMax."""
    data = use.of_rank(0)
    use.choose("axis", lambda: any_axis(use.draw, len(data)))
    use.choose("keepdims", lambda: int(use.draw.chance(0.5)))


def normalised_channels(use: Use) -> None:
    """Propose shapes for BatchNormalization and InstanceNormalization."""
    draw = use.draw
    data = use.shapes[0]
    if data is None:
        vector = next((shape for shape in use.shapes[1:] if shape is not None), None)
        channels = vector[0] if vector else draw.size()
        data = (draw.size(), channels, *draw.shape(draw.rng.choice((0, 1, 2, 2, 2))))
    data = use.propose(0, data)
    for place in range(1, len(use.shapes)):
        use.propose(place, data[1:2])
    use.choose("epsilon", lambda: draw.rng.choice(_EPSILONS))


def layer_normalization(use: Use) -> None:
    """Propose an axis for LayerNormalization, mostly the last one, and fitting shapes."""
    draw = use.draw
    data = use.of_rank(0, least=1)
    last = len(data) - 1
    axis = use.choose("axis", lambda: last if draw.chance(0.7) else any_axis(draw, len(data)))
    use.choose("epsilon", lambda: draw.rng.choice(_EPSILONS))
    for place in range(1, len(use.shapes)):
        use.propose(place, data[axis:])
