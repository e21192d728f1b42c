"""Functions of tensors that take NumPy arrays, and return NumPy arrays.

On Python 3.11, TensorFlow 2.15 leaks 48 bytes for every tensor that Python sees (issue 62551 of
its repository), and an iteration of a world model would show it thousands. Here arrays enter and
leave the graph through `tf.numpy_function`, so Python sees no tensor. Calls are faster, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

_Shape = tuple[int | None, ...]


class ArrayFunction:
    """A traced function that is called with nests of arrays, and returns a nest of arrays.

    Called with tensors, or in a graph, it takes and returns tensors, like a `tf.function`. Several
    threads may call it; it does one call at a time.

    Args:
      fn: takes nests of tensors and of None; returns a nest of tensors. Where sizes change, it is
        traced once more, for any size.
      open_axes: how many leading axes of each array may have any size from the start, which saves
        the second trace: a number for each argument, or one for all arrays.

    Attributes:
      num_traces: how often it was traced for arrays.
    """

    def __init__(self, fn: Callable[..., Any], open_axes: Sequence[int] | int = ()) -> None:
        self.num_traces = 0
        self._fn = fn
        self._open_axes = open_axes
        self._traced_fn = tf.function(fn, autograph=False, reduce_retracing=True)
        self._graphs: dict[Hashable, _Graph] = {}
        # A graph finds its inputs, and leaves its outputs, in attributes: one call at a time.
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        leaves = tree.flatten((args, kwargs))
        if not tf.executing_eagerly() or any(map(tf.is_tensor, leaves)):
            return self._traced_fn(*args, **kwargs)
        arrays = [None if leaf is None else np.asarray(leaf) for leaf in leaves]
        with self._lock:
            return self._graph((args, kwargs), arrays)(arrays)

    def _graph(self, nest: Any, arrays: Sequence[np.ndarray | None]) -> _Graph:
        """Return the graph for arrays of these sizes, traced if there is none."""
        shapes: list[_Shape | None] = [None if array is None else array.shape for array in arrays]
        kind = tuple(
            (path, None if array is None else (array.dtype, array.ndim))
            for (path, _), array in zip(tree.flatten_with_path(nest), arrays, strict=True)
        )
        graph = self._graphs.get(kind)
        wanted = self._opened(nest, shapes) if graph is None else graph.widened(shapes)
        if graph is None or wanted != graph.shapes:
            graph = self._graphs[kind] = _Graph(self._fn, nest, arrays, wanted)
            self.num_traces += 1
        return graph

    def _opened(self, nest: Any, shapes: list[_Shape | None]) -> list[_Shape | None]:
        """Return the shapes to trace for first."""
        args, _ = nest
        if isinstance(self._open_axes, int):
            numbers = [self._open_axes] * len(shapes)
        else:
            pairs = zip(self._open_axes, args, strict=False)
            numbers = [number for number, argument in pairs for _ in tree.flatten(argument)]
            numbers += [0] * (len(shapes) - len(numbers))  # the other arguments
        return [
            None if shape is None else (None,) * number + shape[number:]
            for number, shape in zip(numbers, shapes, strict=True)
        ]


class _Graph:
    """A function traced for arrays of some structure, dtypes and shapes.

    They are those of the nest of arguments and keyword arguments, and of its leaves `arrays`. In
    `shapes` a size that is None may be any; a leaf may be None itself.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        nest: Any,
        arrays: Sequence[np.ndarray | None],
        shapes: list[_Shape | None],
    ) -> None:
        self.shapes = shapes
        self._inputs: list[np.ndarray] = []
        self._outputs: tuple[np.ndarray, ...] = ()
        self._output_nest: Any = None
        dtypes = [array.dtype for array in arrays if array is not None]

        def run() -> None:
            tensors = iter(tf.numpy_function(lambda: self._inputs, [], dtypes) if dtypes else [])
            leaves = [None if shape is None else next(tensors) for shape in shapes]
            for leaf, shape in zip(leaves, shapes, strict=True):
                if leaf is not None:
                    leaf.set_shape(shape)
            args, kwargs = tree.unflatten_as(nest, leaves)
            outputs = fn(*args, **kwargs)
            self._output_nest = tree.map_structure(lambda _: None, outputs)
            tf.numpy_function(self._take, tree.flatten(outputs), [])

        # TensorFlow would warn of several functions `run`, as if one were traced again and again.
        self._run_fn = tf.function(run, autograph=False).get_concrete_function()

    def __call__(self, arrays: Sequence[np.ndarray | None]) -> Any:
        """Call the function with these leaves."""
        self._inputs = [array for array in arrays if array is not None]
        try:
            self._run_fn()
            return tree.unflatten_as(self._output_nest, self._outputs)
        finally:
            self._inputs, self._outputs = [], ()

    def widened(self, shapes: Sequence[_Shape | None]) -> list[_Shape | None]:
        """Return the shapes that hold for these leaves, and for those that the graph takes."""
        return [
            None
            if shape is None or new_shape is None
            else tuple(a if a == b else None for a, b in zip(shape, new_shape, strict=True))
            for shape, new_shape in zip(self.shapes, shapes, strict=True)
        ]

    def _take(self, *outputs: np.ndarray) -> None:
        self._outputs = outputs
