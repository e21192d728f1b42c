"""The model that is to be rewritten: its graph, its sizes, and a program that runs it."""

from __future__ import annotations

import collections
import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence

import onnx

from environments.errors import UsageError, UserError
from environments.isolation.process import CrashError
from environments.machine import num_processors
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import Arrays, Backend, Program
from environments.tensor_graphs.execution.choosing import Choice, Given, choose
from environments.tensor_graphs.execution.inner_values import learned_types, of_unknown_type
from environments.tensor_graphs.execution.inputs import NoInputsError, load_inputs, random_inputs
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.reference import EXACT_S, Reference
from environments.tensor_graphs.execution.sizes import (
    OpenSizes,
    Sizes,
    SizesError,
    with_inner_sizes,
)
from environments.tensor_graphs.execution.trials import Trial, Trials, make_trials

_NUM_HINTS = 12
_SLOW_RUN_S = 0.003
_LARGE_BYTES = 1 << 29
# Types and sizes do not depend on optimisations, without which a model is opened sooner.
_PLAIN = remote.isolated("onnxruntime-disable")


class Original:
    """A model as it was given.

    Attributes:
      name: name of the model, for messages.
      source: the model, or its file.
      open_sizes: the sizes that it leaves open.
    """

    def __init__(
        self,
        name: str,
        source: pathlib.Path | onnx.ModelProto,
        levels: Sequence[Backend],
        exact_s: float = EXACT_S,
    ) -> None:
        """Read a model that the first of the levels runs, else one with less optimisation.

        `exact_s` is the time for its outputs in float64, as `reference.EXACT_S`.

        Raises:
          UserError: the model cannot be read.
        """
        self.name = name
        self.source = source
        self.graph = onnx_io.read(source)
        self._learned: list[onnx.ValueInfoProto] = []
        self.open_sizes = OpenSizes(self.graph)
        self._levels = levels
        self._exact_s = exact_s

    @property
    def program(self) -> Program:
        """The model, ready to run; opened when it is first used.

        Raises:
          UserError: the backend refuses it at each level.
        """
        return self._opened[1]

    @property
    def levels(self) -> Sequence[Backend]:
        """The backend at the levels that take the model: from the first one that opens it.

        Raises:
          UserError: the backend refuses it at each level.
        """
        return self._levels[self._opened[0] :]

    @functools.cached_property
    def _opened(self) -> tuple[int, Program]:
        errors = []
        for place, level in enumerate(self._levels):
            try:
                return place, level.open(self.source)
            except UserError as error:
                errors.append(error)
        raise errors[0]

    @functools.cached_property
    def reference(self) -> Reference:
        """What candidates are compared with: the model's outputs, in its own types and in float64.

        Raises:
          UserError: the backend refuses it.
        """
        return Reference(self.program, self._precise, self._exact_s)

    def compute_ahead(self, trials: Trials) -> None:
        """Have another process compute the outputs in float64 that candidates are compared with.

        Nothing is done where there is no other processor, where they are here in no time, or where
        the model takes so much memory that another process should not read it too.
        """
        values = (node.value for node in self.graph.nodes.values())
        is_small = sum(value.nbytes for value in values if value is not None) < _LARGE_BYTES
        is_slow = self.reference.run_s(trials.measured[0].inputs) > _SLOW_RUN_S
        if is_slow and is_small and num_processors() > 1:
            inputs = [trial.inputs for trial in trials.compared]
            self.reference.compute_ahead(self.source, self._learned, inputs)

    @functools.cached_property
    def _precise(self) -> Precise:
        return Precise(self.graph)

    @functools.cached_property
    def proto(self) -> onnx.ModelProto:
        """The model; without the weights that are in other files."""
        if isinstance(self.source, onnx.ModelProto):
            return self.source
        return onnx.load(self.source, load_external_data=False)

    def choose(self, sizes: Given, own: Sequence[Trial] = ()) -> Choice:
        """Choose the sizes to optimise at, given those that the user names and the user's inputs.

        The model runs at these. So if types are unknown, it now learns them.

        Raises:
          UserError: the model does not run at given sizes.
          NoInputsError: no sizes are found at which it runs.
          UsageError: there are too many combinations of sizes.
        """
        with naming_options():
            choice = choose(
                self.open_sizes,
                sizes,
                self._why_not,
                self.name,
                own=[trial.sizes for trial in own],
                hints=self._sizes_of_weights(),
            )
        self._learn_types(choice.points[0])
        return choice

    def freeze(self, sizes: Sizes) -> None:
        """Fix the sizes of the graph; the model itself stays, to compare with."""
        shapes = dict(sizes.shapes)
        self.graph = onnx_io.read(self.source, shapes=shapes, learned=self._learned)

    def load_trials(self, paths: Sequence[pathlib.Path]) -> list[Trial]:
        """Load the user's own inputs, each from an .npz file.

        Raises:
          UserError: a file is no .npz file, or does not fit the model.
        """
        trials = []
        for path in paths:
            arrays = load_inputs(path, self.proto)
            try:
                trials.append(Trial(self.open_sizes.of_arrays(arrays), arrays))
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
        return trials

    def make_trials(
        self, choice: Choice, own: Sequence[Trial] = (), freezes: bool = False
    ) -> Trials:
        """Make the inputs to compare and measure candidates on, the user's `own` among them.

        `freezes` says whether candidates run at the chosen sizes only.

        Raises:
          NoInputsError: none are given, and none can be drawn on which the model runs.
        """
        edges = [] if freezes else self.open_sizes.edges(choice.points[0])
        with naming_options():
            return make_trials(self.proto, self.reference, choice.points, own, self._precise, edges)

    def with_inner_sizes(self, sizes: Sizes, inputs: Arrays | None = None) -> Sizes:
        """Return sizes with those of inner values, as a run of the model shows them.

        It runs on inputs of these sizes, random ones if none are given.
        """
        if inputs is None:
            try:
                inputs = random_inputs(self.proto, sizes=sizes)
            except NoInputsError:
                return sizes
        return with_inner_sizes(self.graph, sizes, inputs, _PLAIN)

    def _learn_types(self, sizes: Sizes) -> None:
        """Read the model again with the types that no inference knows, as two runs show them."""
        if self._learned or not of_unknown_type(self.graph):
            return
        larger = self.open_sizes.at(
            {size.name: dict(sizes.symbols)[size.symbol] + 1 for size in self.open_sizes.free}
        )
        points = (sizes, larger) if self.open_sizes.all else (sizes,)
        try:
            runs = [
                (dict(point.symbols), random_inputs(self.proto, seed=seed, sizes=point))
                for seed, point in enumerate(points)
            ]
        except NoInputsError:
            return
        self._learned = learned_types(self.graph, runs, _PLAIN)
        if self._learned:
            self.graph = onnx_io.read(self.source, learned=self._learned)

    def _why_not(self, sizes: Sizes) -> str:
        """Run the model at some sizes; return why that fails, "" if it does not."""
        program, inputs = self.program, random_inputs(self.proto, sizes=sizes)
        try:
            outputs = program.run(inputs)
        except CrashError:
            raise
        except UserError as error:
            return str(error)
        is_empty = all(getattr(output, "size", 1) == 0 for output in outputs.values())
        return "its outputs have no elements" if is_empty else ""

    def _sizes_of_weights(self) -> list[int]:
        """Return the commonest sizes of the model's weights; an input may have to fit one."""
        counts = collections.Counter(
            size
            for weight in self.proto.graph.initializer
            for size in weight.dims
            if len(weight.dims) > 1
        )
        return [size for size, _ in counts.most_common(_NUM_HINTS) if size > 1]


@contextlib.contextmanager
def naming_options() -> Iterator[None]:
    """Add the options that help to what is said of sizes and inputs, where nobody knows of options.

    Raises:
      UserError, NoInputsError, UsageError: instead of an error of sizes or inputs.
    """
    try:
        yield
    except SizesError as error:
        raise UserError(f"{error} (--dimension NAME=SIZE, --inputs FILE.npz)") from None
    except NoInputsError as error:
        raise NoInputsError(f"{error} (--dimension NAME=SIZE, --inputs FILE.npz)") from None
    except UsageError as error:
        raise UsageError(f"--dimension: {error}") from None


def levels_of(objective: str, threads: int = 1) -> list[Backend]:
    """Return the backend that an objective is about, then with less and less optimisation."""
    if objective == "openvino":
        return [remote.isolated("openvino", threads)]
    name = "onnxruntime-cuda" if objective == "onnxruntime-cuda" else "onnxruntime"
    suffixes = ("", "-extended", "-basic", "-disable")
    return [remote.isolated(name + suffix, threads) for suffix in suffixes]
