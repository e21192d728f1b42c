"""Reading: the model, the user's inputs and the policy, if all files can be written."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from environments import files
from environments.errors import UsageError, UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.reference import EXACT_S
from environments.tensor_graphs.execution.trials import Trial
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.original import Original, levels_of
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

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


def read(request: Optimization) -> Reading:
    """Read what an optimisation begins with.

    Raises:
      UserError: a file cannot be read, or one could not be written in the end.
      UsageError: the method needs a policy and there is none, or it takes none.
    """
    _check_places(request)
    policy = _load_policy(request)
    levels = levels_of(request.objective, request.threads)
    # It imports the backend while the model is read here.
    remote.start()
    exact_s = min(EXACT_S, _EXACT * request.seconds)
    original = Original(str(request.model), request.model, levels, exact_s)
    trials = original.load_trials(request.inputs)
    return Reading(original, trials, policy, _walker(request))


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


def _load_policy(request: Optimization) -> GraphPolicy | None:
    method, path = request.method, request.policy
    if method == "policy" and path is None:
        raise UsageError("--method policy: expected --policy DIR with it, found none; give one")
    if path is None:
        return None
    if method not in _WITH_POLICY:
        raise UsageError(
            f"--policy: expected --method {' or '.join(_WITH_POLICY)} with it, found {method}; "
            "give one of them"
        )
    return GraphPolicy.load(path)


def _walker(request: Optimization) -> GraphPolicy | None:
    is_on_cpu = request.objective in _ON_CPU
    if request.method != "regions" or request.policy is not None or not is_on_cpu:
        return None
    return GraphPolicy.load(shipped.DIRECTORY)
