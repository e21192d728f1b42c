"""The task: a model, the user's inputs, a policy, and the sizes and inputs to try candidates on.

`read` reads the files, if all those that are to be written can be; `make_task` chooses the sizes
that the model leaves open, and makes inputs of these sizes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import time
from collections.abc import Sequence
from typing import NamedTuple

from environments import files
from environments.errors import UsageError, UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.reference import EXACT_S, Reference
from environments.tensor_graphs.execution.trials import Trial, Trials
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.original import Original, levels_of
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

_WITH_POLICY = ("regions", "policy")
# Objectives whose costs the policy learned from that comes with the installation.
_ON_CPU = ("onnxruntime", "onnxruntime-extended", "onnxruntime-basic", "onnxruntime-disable")
# Share of the seconds in which outputs in float64 are computed for more than one input.
_EXACT = 0.25


class Reading(NamedTuple):
    """What the user's files hold.

    Attributes:
      policy: the policy that leads the search; None for a search without one.
      walker: the policy whose likeliest steps are tried before any search: the one that comes with
        the installation, where no other is named and costs are those that it learned from.
    """

    original: Original
    inputs: Sequence[Trial]
    policy: GraphPolicy | None
    walker: GraphPolicy | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A model that can be run, and all that is needed to optimise it.

    Attributes:
      problem: the graph, the rules and the objective, at the chosen sizes.
      trials: the inputs to compare and measure candidates on.
      began_s: when everything began, by `time.monotonic`.
      single: the backend on one thread, where it otherwise runs on several; else None.
    """

    request: Optimization
    reading: Reading
    problem: GraphProblem
    trials: Trials
    began_s: float
    single: Backend | None = None

    @property
    def reference(self) -> Reference:
        """What candidates are compared with."""
        return self.reading.original.reference

    @property
    def levels(self) -> Sequence[Backend]:
        """The backend at the levels that take the model, with less and less optimisation."""
        return self.reading.original.levels

    @property
    def below(self) -> Backend | None:
        """The level that a candidate may need for inputs without elements; see `equivalence`.

        --strict does not allow a candidate to need less optimisation than the model.
        """
        return None if self.request.strict or len(self.levels) < 2 else self.levels[1]

    @property
    def is_over(self) -> bool:
        """Whether all the time that everything may take has passed."""
        return time.monotonic() >= self.began_s + self.request.all_seconds

    def share_end_s(self, share: float) -> float:
        """Return when a share of the time that is left will be over, by `time.monotonic`."""
        now_s = time.monotonic()
        return now_s + share * max(0.0, self.began_s + self.request.all_seconds - now_s)


def read(request: Optimization) -> Reading:
    """Read what an optimisation begins with.

    Raises:
      UserError: a file cannot be read, or one could not be written in the end.
      UsageError: the method needs a policy and there is none, or it takes none.
    """
    _check_places(request)
    policy, walker = _load_policies(request)
    levels = levels_of(request.objective, request.threads)
    # It imports the backend while the model is read here.
    remote.start()
    exact_s = min(EXACT_S, _EXACT * request.seconds)
    original = Original(str(request.model), request.model, levels, exact_s)
    return Reading(original, original.load_trials(request.inputs), policy, walker)


def make_task(request: Optimization, reading: Reading, reporter: Reporter, began_s: float) -> Task:
    """Choose the sizes to optimise at, and make inputs of these sizes.

    Raises:
      UserError: a size, an input, the rules or the objective cannot be used.
      NoInputsError: no sizes or inputs are found with which the model runs.
      UsageError: --freeze does not go with the sizes.
    """
    original = reading.original
    choice = original.choose(dict(request.dimensions), reading.inputs)
    if request.freeze:
        choice = _freeze(reading, choice)
    trials = original.make_trials(choice, reading.inputs, request.freeze)
    if choice.chosen:
        reporter.say(f"sizes: {choice.points[0]}; to change what was chosen: {options_of(choice)}")
    original.compute_ahead(trials)
    problem = GraphProblem.at(
        original,
        request,
        choice,
        request.strict,
        request.contrib,
        trials.measured[0].inputs,
        request.threads,
    )
    single = levels_of(request.objective)[0] if request.threads > 1 else None
    return Task(request, reading, problem, trials, began_s, single)


def options_of(choice: Choice) -> str:
    """Return the options that change what was chosen."""
    sizes = choice.points[0].to_json()
    words = (shlex.quote(f"{name}={sizes[name]}") for name in choice.chosen)
    return " ".join(f"--dimension {word}" for word in words)


def data_of(path: pathlib.Path) -> set[pathlib.Path]:
    """Return the files with a model's data; none if there is no model, or no complete one."""
    try:
        _, *names = onnx_io.file_names(path)
    except UserError:
        return set()
    return {path.parent.resolve() / name for name in names}


def _check_places(request: Optimization) -> None:
    """Raise an error before anything takes long, if a file could not be written at the end."""
    used = [*filter(None, (request.model, request.rules)), *request.inputs]
    places = [*filter(None, (request.place, request.report, request.checkpoint))]
    # A model's data may be overwritten only by a file that is there already.
    if any(map(files.exists, places)):
        used += data_of(request.model)
    for place in places:
        files.check_place(place)
        for path in used:
            is_same = place.exists() and path.exists() and place.samefile(path)
            if is_same or place.absolute() == path.absolute():
                what = "the model" if path == request.model else str(path)
                raise UserError(f"{place}: expected another file than {what}; name another")
        used.append(place)


def _load_policies(request: Optimization) -> tuple[GraphPolicy | None, GraphPolicy | None]:
    """Return the policy that leads the search, and the walker; see `Reading`."""
    method, path = request.method, request.policy
    if method == "policy" and path is None:
        raise UsageError("--method policy: expected --policy DIR with it, found none; give one")
    if path is None:
        is_walked = method == "regions" and request.objective in _ON_CPU
        return None, GraphPolicy.load(shipped.DIRECTORY) if is_walked else None
    if method not in _WITH_POLICY:
        raise UsageError(
            f"--policy: expected --method {' or '.join(_WITH_POLICY)} with it, found {method}; "
            "give one of them"
        )
    return GraphPolicy.load(path), None


def _freeze(reading: Reading, choice: Choice) -> Choice:
    """Fix the sizes of a model's graph at those that lead the search; return a choice of these.

    Half and double of them are no longer possible. The model itself stays, to compare with.
    """
    sizes = list(dict.fromkeys(str(trial.sizes) for trial in reading.inputs))
    if len(sizes) > 1:
        raise UsageError(
            f"--freeze: expected inputs of the same sizes, found {' and '.join(sizes)}; give one "
            "file"
        )
    point = choice.points[0]
    reading.original.freeze(point)
    return dataclasses.replace(choice, points=(point,))
