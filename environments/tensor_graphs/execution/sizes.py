"""The sizes at which a model is searched, checked, measured and reported.

A file may leave a size open. It then gives the size a name (`batch`, `p2o.DynamicDimension.0`), no
name, a name that says nothing (`?`), or a negative number. Costs, random inputs, measurements and
reports all need numbers for these sizes, and all of them take them from one `Sizes`. Nothing falls
back to a size of its own.

    sizes = OpenSizes(graph).at({"batch": 1, "width": 320})
    sizes.named      what people see                ("batch", 1), ("width", 320)
    sizes.shapes     what inputs are made of        ("x", (1, 3, 48, 320))
    sizes.symbols    what costs are computed with   ("size_0", 1), ("width", 320)
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.execution.inner_values import run_exposed
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Dimension, Ref
from environments.tensor_graphs.operators import dimensions

_NAME = r"[A-Za-z_][\w.]*"
_SUM_OR_PRODUCT = re.compile(rf"{_NAME}(?:\s*[-+*]\s*(?:{_NAME}|\d+))+")

Place = tuple[str, int]
"""Name of an input, and an axis of it."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A number for each size that a model leaves open.

    Attributes:
      named: pairs (name, size) of the open sizes, by the names that people see.
      shapes: pairs (input, shape), for the inputs that are tensors of known rank.
      symbols: pairs (name in the graph, size); may include sizes of inner values.
    """

    named: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    symbols: tuple[tuple[str, int], ...] = ()

    def value(self, size: Dimension) -> int:
        """Work out a size of a graph: with N = 2, "128*N" is 256.

        A size that depends on the values of inputs counts as 1 unless `symbols` has it.
        """
        if isinstance(size, int):
            return size
        number = self._values.get(size)
        if number is None:
            number = self._values[size] = dimensions.value(size, self._values)
        return number

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an input; None if it is no tensor of known rank."""
        return dict(self.shapes).get(name)

    def to_json(self) -> dict[str, int]:
        """Return the open sizes by name."""
        return dict(self.named)

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.named) or "as the file gives them"

    @functools.cached_property
    def _values(self) -> dict[str, int]:
        """The size of each symbol, and of what was worked out from them."""
        return dict(self.symbols)


NONE_OPEN = Sizes()
"""For models that leave no size open."""


@dataclasses.dataclass(frozen=True)
class OpenSize:
    """A size that a model leaves open.

    Attributes:
      name: the name that people see: the file's own, or INPUT[AXIS] if the file gives none, or
        gives the same one to sizes that may differ.
      symbol: the name in the graph.
      places: inputs and axes that have this size.
      own: the file's own name; "" if it gives none.
    """

    name: str
    symbol: str
    places: tuple[Place, ...]
    own: str = ""

    @property
    def names(self) -> set[str]:
        """All names by which the size may be given."""
        return {self.own, *map(_place_name, self.places)} - {""}


class OpenSizes:
    """The sizes that the inputs of a graph leave open.

    Attributes:
      all: the sizes, in the order of the inputs.
      free: those that do not follow from others, as a size does whose own name is "past + 1".
    """

    def __init__(self, graph: Graph) -> None:
        """Find the open sizes of a graph's inputs; its header knows the file's own names."""
        self._types = {
            graph.nodes[number].attribute("name"): kind.shape
            for number in graph.inputs
            for kind in graph.nodes[number].types
            if kind is not None and kind.shape is not None
        }
        self.all = _open_sizes(self._types, _own_names(graph))
        self.free = tuple(size for size in self.all if not _follows(size, self.all))

    def at(self, chosen: Mapping[str, int]) -> Sizes:
        """Return the sizes at which every open size has the chosen number.

        `chosen` has the number of each size in `free`, by `OpenSize.name`; it may have others too.

        Raises:
          ValueError: a size is missing.
        """
        if missing := [size.name for size in self.free if size.name not in chosen]:
            raise ValueError(f"no number for the open sizes {', '.join(missing)}")
        numbers = {size.own: chosen[size.name] for size in self.all if size.name in chosen}
        symbols = {
            size.symbol: chosen[size.name]
            if size.name in chosen
            else dimensions.value(size.own, numbers)
            for size in self.all
        }
        return Sizes(
            tuple((size.name, symbols[size.symbol]) for size in self.all),
            tuple(
                (name, tuple(size if isinstance(size, int) else symbols[size] for size in shape))
                for name, shape in self._types.items()
            ),
            tuple(symbols.items()),
        )

    def edges(self, sizes: Sizes) -> Iterator[Sizes]:
        """Yield unusual sizes at which a model may run too, given the usual ones.

        They are 0 and 1, for each open size and for all of them. A file may give one name to sizes
        that are equal by chance only, so of each size with several places, one place is varied too.
        """
        usual = {size.name: dict(sizes.symbols)[size.symbol] for size in self.all}
        for number in (1, 0):
            for size in self.free:
                yield self.at({**usual, size.name: number})
            if len(self.free) > 1:
                yield self.at({**usual, **{free.name: number for free in self.free}})
        for size in self.free:
            together = self.at({**usual, size.name: max(usual[size.name], 2)})
            for place in size.places if len(size.places) > 1 else ():
                yield from (_varied(together, place, size) for size in (1, usual[size.name] + 2))

    def with_symbols(self, sizes: Sizes) -> Sizes:
        """Return sizes that have this graph's symbols, with the shapes of its inputs.

        Raises:
          ValueError: a size is missing.
        """
        symbols = dict(sizes.symbols)
        sized = [size for size in self.all if size.symbol in symbols]
        return self.at({size.name: symbols[size.symbol] for size in sized})

    def of_arrays(self, arrays: Mapping[str, np.ndarray]) -> Sizes:
        """Return the sizes that inputs have, given as arrays by name; defaults may be missing.

        Raises:
          UserError: two axes differ that the file gives one name, or an open size is in no array.
        """
        chosen: dict[str, int] = {}
        for size in self.all:
            lengths = {
                _place_name((name, axis)): arrays[name].shape[axis]
                for name, axis in size.places
                if name in arrays
            }
            if len(set(lengths.values())) != 1:
                listed = ", ".join(f"{place} is {n}" for place, n in lengths.items()) or "none"
                raise UserError(f"{size.name}: expected one size in the inputs, found {listed}")
            chosen[size.name] = next(iter(lengths.values()))
        return self.at(chosen)

    def named(self, name: str, model: str) -> Sequence[OpenSize]:
        """Return the open sizes that a name stands for: the file's own, or INPUT[AXIS].

        A name such as `?` may stand for several. `model` is the model's name, for messages.

        Raises:
          SizesError: no open size has this name.
        """
        sizes = [size for size in self.all if name in size.names]
        if not sizes:
            names = ", ".join(size.name for size in self.all) or "none"
            raise SizesError(
                f"{name}: expected a size that the inputs of {model} leave open; found {names}"
            )
        return sizes

    def rank(self, name: str) -> int:
        """Return the number of axes of an input."""
        return len(self._types[name])

    def fixed(self, place: Place) -> int | None:
        """Return the size of an input's axis; None if it is open or there is no such axis."""
        shape = self._types[place[0]]
        size = shape[place[1]] if place[1] < len(shape) else None
        return size if isinstance(size, int) else None


class SizesError(UserError):
    """Sizes do not go with a model, or with each other; the user may give others."""


def together(many: Iterable[Sizes]) -> Sizes:
    """Return sizes for the costs of several models at once.

    Raises:
      SizesError: two models use one symbol for different sizes.
    """
    symbols: dict[str, int] = {}
    for sizes in many:
        for symbol, size in sizes.symbols:
            if symbols.setdefault(symbol, size) != size:
                raise SizesError(
                    f"models: expected the same numbers for the sizes that they leave open, found "
                    f"{size} and {symbols[symbol]}; give them, or take the models one by one"
                )
    return Sizes(symbols=tuple(symbols.items()))


def _varied(sizes: Sizes, place: Place, size: int) -> Sizes:
    """Return sizes with another shape of one input; names stand for what they stood for."""
    shapes = dict(sizes.shapes)
    name, axis = place
    shapes[name] = (*shapes[name][:axis], size, *shapes[name][axis + 1 :])
    return dataclasses.replace(sizes, shapes=tuple(shapes.items()))


def _place_name(place: Place) -> str:
    return f"{place[0]}[{place[1]}]"


def _own_names(graph: Graph) -> Mapping[Place, str]:
    """Return the file's names of the inputs' sizes; "" for none."""
    if graph.header is None:
        return {}
    return {
        (info.name, axis): size.dim_param
        for info in graph.header.shell.graph.input
        for axis, size in enumerate(info.type.tensor_type.shape.dim)
    }


def _open_sizes(
    types: Mapping[str, Sequence[Dimension]], own: Mapping[Place, str]
) -> tuple[OpenSize, ...]:
    places: dict[str, list[Place]] = {}
    for name, shape in types.items():
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                places.setdefault(size, []).append((name, axis))
    owns = {symbol: own.get(occurrences[0], symbol) for symbol, occurrences in places.items()}
    counts = collections.Counter(owns.values())
    return tuple(
        OpenSize(
            own_name if own_name and counts[own_name] == 1 else _place_name(occurrences[0]),
            symbol,
            tuple(occurrences),
            own_name,
        )
        for (symbol, occurrences), own_name in zip(places.items(), owns.values(), strict=True)
    )


def _follows(size: OpenSize, sizes: Sequence[OpenSize]) -> bool:
    """Return whether a size's own name is a sum or product of the other sizes' names."""
    others = {another.own for another in sizes if another is not size}
    is_formula = _SUM_OR_PRODUCT.fullmatch(size.own) is not None
    return is_formula and set(re.findall(_NAME, size.own)) <= others


def with_inner_sizes(graph: Graph, sizes: Sizes, inputs: Arrays, on: Backend) -> Sizes:
    """Return sizes with the symbols of inner values too, as a run on some inputs shows them.

    They stay as they are if all symbols are known, or if the model does not run with the values
    that have them as its outputs.
    """
    places = _places(graph, {symbol for symbol, _ in sizes.symbols})
    if not places:
        return sizes
    refs = list(dict.fromkeys(ref for ref, _ in places.values()))
    values = run_exposed(graph, refs, inputs, on)
    if values is None:
        return sizes
    shapes = {ref: value.shape for ref, value in zip(refs, values, strict=True)}
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
