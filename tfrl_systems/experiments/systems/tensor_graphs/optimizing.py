"""Optimisation of one model: search, check the candidates, measure them, write the fastest."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from environments.errors import UsageError, UserError
from environments.tensor_graphs.execution.backends import Backend, backend
from environments.tensor_graphs.execution.inputs import load_inputs, random_inputs
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search import INTERRUPTED, Budget, Progress, Result, Visited, replay
from environments.tensor_graphs.selection.contributions import measure_segments
from environments.tensor_graphs.selection.selection import (
    Candidate,
    Selection,
    select,
    verify,
    worth_measuring,
)
from tfrl_systems.experiments.reporting import Reporter
from tfrl_systems.experiments.settings import option
from tfrl_systems.experiments.systems.tensor_graphs import page
from tfrl_systems.experiments.systems.tensor_graphs.bounding import bound_of
from tfrl_systems.experiments.systems.tensor_graphs.evaluating import Searching
from tfrl_systems.experiments.systems.tensor_graphs.outcome import Outcome
from tfrl_systems.experiments.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.experiments.systems.tensor_graphs.problem import GraphProblem, Rewriting

_NUM_TRIALS = 3
_BOUND_S = 60.0
# The time for each search by another estimate, as a share of the time for the main search.
_OTHERS = 0.25


METHODS = ("regions", "greedy", "taso", "beam", "policy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization(Searching, Rewriting):
    """What to optimise, and how.

    Attributes:
      model: the model, an ONNX file.
      output: file to write the faster model to.
      method: how to search (see tfrl evaluate tensor_graphs --help).
      policy: directory of a policy that tfrl train tensor_graphs learned, for --method policy.
      strict: leave out rules that may change NaN or infinity (see tfrl rules list).
      measure: measure candidates end to end; without it the estimate decides.
      measure_seconds: seconds of each final measurement; longer measurements detect smaller gains.
      inputs: file with an array for each of the model's inputs, by name, to compare outputs on and
        to measure with.
      bound: also say how far from optimal the estimate is (for graphs of up to 30 operators).
      checkpoint: file to keep the search in; if it exists, the search goes on from it.
      report: file for a page with the graph before and after, and what each rule saves.
    """

    model: pathlib.Path = option(metavar="MODEL.onnx")
    output: pathlib.Path = option(metavar="OUT.onnx")
    method: str = option("regions", choices=METHODS)
    policy: pathlib.Path | None = option(None, metavar="DIR")
    strict: bool = False
    measure: bool = True
    measure_seconds: float = option(10.0, metavar="N", positive=True)
    inputs: pathlib.Path | None = option(None, metavar="FILE.npz")
    bound: bool = False
    checkpoint: pathlib.Path | None = option(None, metavar="FILE")
    report: pathlib.Path | None = option(None, metavar="FILE.html")

    def load_policy(self) -> GraphPolicy | None:
        """Load the policy, if the method is "policy"; else return None.

        Raises:
          UserError: the policy cannot be read.
          UsageError: the method needs a policy and none is given, or the other way round.
        """
        if (self.method == "policy") != (self.policy is not None):
            raise UsageError("--method policy and --policy DIR go together")
        return GraphPolicy.load(self.policy) if self.policy is not None else None


def optimize(asked: Optimization, reporter: Reporter) -> Outcome:
    """Write a faster model; if none is found, write a copy of the model.

    Raises:
      UserError: a file cannot be read or written, or an option cannot be used.
    """
    began_s = time.monotonic()
    _check_places(asked)
    policy = asked.load_policy()
    problem = GraphProblem.of(str(asked.model), asked.model, asked, asked.strict)
    trials = _inputs(asked, problem)
    levels = _levels(asked.objective)
    result = _search(asked, problem, policy, reporter)
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        directory = pathlib.Path(name)
        proposed = _propose(asked, problem, result, policy)
        candidates = list(verify(asked.model, proposed, trials, directory, levels[0]))
        for one in candidates:
            if one.refusal:
                reporter.say(f"refused: {one.refusal}")
        selection = _select(asked, result, candidates, trials[-1], levels, reporter)
        ratios = _account(asked, selection, trials[-1], levels[0], directory)
    _write(asked, selection)
    outcome = Outcome(
        model=problem.name,
        output=str(asked.output),
        objective=asked.objective,
        strict=asked.strict,
        before=problem.graph,
        result=result,
        selection=selection,
        ratios=ratios,
        bound=bound_of(problem, _BOUND_S, reporter) if asked.bound else None,
        seconds=time.monotonic() - began_s,
    )
    if asked.report is not None:
        _replace(asked.report, page.make_page(outcome).encode())
    if asked.checkpoint is not None and result.stopped != INTERRUPTED:
        asked.checkpoint.unlink(missing_ok=True)
    return outcome


def _check_places(asked: Optimization) -> None:
    """Raise an error before anything takes long, if a file could not be written at the end."""
    for path in (asked.output, asked.report, asked.checkpoint):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: expected a directory {path.parent}, found none; make it")
    if asked.output.exists() and asked.output.samefile(asked.model):
        raise UserError(f"{asked.output}: expected another file than the model; name another")


def _inputs(asked: Optimization, problem: GraphProblem) -> list[Mapping[str, np.ndarray]]:
    """Return the inputs to compare candidates on; the last ones are also used to measure."""
    model = onnx.load(asked.model, load_external_data=False)
    own = [load_inputs(asked.inputs, model)] if asked.inputs is not None else []
    try:
        drawn = [random_inputs(model, seed, problem.sizes) for seed in range(_NUM_TRIALS)]
    except UserError:
        if not own:
            raise
        drawn = []
    return [*drawn, *own]


def _levels(objective: str) -> list[Backend]:
    """Return the objective's backend, then the same backend with less and less optimisation."""
    if objective == "openvino":
        return [backend("openvino")]
    name = "onnxruntime-cuda" if objective == "onnxruntime-cuda" else "onnxruntime"
    return [backend(name + suffix) for suffix in ("", "-extended", "-basic", "-disable")]


def _search(
    asked: Optimization, problem: GraphProblem, policy: GraphPolicy | None, reporter: Reporter
) -> Result:
    with reporter.status() as tell:

        def on_progress(progress: Progress) -> None:
            gain = 100 * (1 - progress.best_cost_ms / max(problem.start.cost_ms, 1e-12))
            tell(
                f"searching: {progress.expansions} expansions, estimate {-gain:+.1f}% "
                f"({progress.seconds:.0f} s)"
            )

        result = problem.search(
            asked.method,
            asked.budget,
            policy,
            asked.rollouts,
            on_progress=on_progress,
            resume_file=asked.checkpoint,
        )
    if result.stopped == INTERRUPTED:
        reporter.say(
            "search interrupted; going on with the best so far (Ctrl-C again ends the program)"
        )
    return result


def _propose(
    asked: Optimization, problem: GraphProblem, result: Result, policy: GraphPolicy | None
) -> list[Visited]:
    """Choose states to check: from the search's trail, and from trails found by other estimates."""
    found = {one.state.graph: one for one in worth_measuring(result.candidates[0])}
    if asked.measure and result.stopped != INTERRUPTED:
        budget = Budget(asked.seconds * _OTHERS, asked.budget.expansions)
        for one in problem.others:
            other = one.search(asked.method, budget, policy, asked.rollouts)
            here = replay(Visited(problem.start), other.path)
            for visited in worth_measuring(here, max_states=2):
                found.setdefault(visited.state.graph, visited)
    return list(found.values())


def _select(
    asked: Optimization,
    result: Result,
    candidates: Sequence[Candidate],
    inputs: Mapping[str, np.ndarray],
    levels: Sequence[Backend],
    reporter: Reporter,
) -> Selection:
    if not candidates and not result.expansions:
        return Selection(None, f"none of the rules applies ({result.stopped})", ())
    right = [one for one in candidates if not one.refusal]
    if right and not asked.measure:
        return Selection(right[0], "", tuple(candidates))
    with reporter.status() as tell:
        return select(
            asked.model, candidates, inputs, levels, asked.measure_seconds, on_progress=tell
        )


def _account(
    asked: Optimization,
    selection: Selection,
    inputs: Mapping[str, np.ndarray],
    on: Backend,
    directory: pathlib.Path,
) -> list[float]:
    """Measure the ratios from which `contributions` computes what each rule saves."""
    if selection.chosen is None or not asked.measure:
        return []
    visited = selection.chosen.visited
    seconds = asked.measure_seconds / 10
    return measure_segments(asked.model, visited, inputs, on, directory, seconds)


def _write(asked: Optimization, selection: Selection) -> None:
    """Write the chosen model to the output; if none was chosen, copy the given model there."""
    if selection.chosen is not None:
        graph = selection.chosen.visited.state.graph
        assert isinstance(graph, Graph)
        save(graph, asked.output)
        return
    _copy_weights(asked.model, asked.output)
    _replace(asked.output, asked.model.read_bytes())


def _copy_weights(model: pathlib.Path, output: pathlib.Path) -> None:
    """Copy the weight files that a model refers to, since they must lie beside its copy."""
    if output.parent.resolve() == model.parent.resolve():
        return
    loaded = onnx.load(model, load_external_data=False)
    for tensor in loaded.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                target = output.parent / entry.value
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(model.parent / entry.value, target)


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Write a file at once or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
