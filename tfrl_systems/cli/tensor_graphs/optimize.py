"""`tfrl optimize`, once the command line is read."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs import accounting
from environments.tensor_graphs.backends import Backend, backend
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.inputs import load_inputs, random_inputs
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search import (
    INTERRUPTED,
    Budget,
    Progress,
    Result,
    Visited,
    replay,
)
from environments.tensor_graphs.search.exact import Bound, bound
from environments.tensor_graphs.selecting import Candidate, Selection, proposals, select, verify
from tfrl_systems.cli.console import say, show, show_json
from tfrl_systems.cli.tensor_graphs import page, report
from tfrl_systems.cli.tensor_graphs.problem import Problem, num_operators, policy_of

_NUM_TRIALS = 3
_BOUND_S = 60.0
_MOST_BOUNDED = 30
# Of the time for the search, for each of those by another estimate.
_OTHERS = 0.25


def run(options: argparse.Namespace) -> int:
    """Optimises as the command line says."""
    began_s = time.monotonic()
    _check_places(options)
    policy_of(options)
    problem = Problem.of(str(options.model), options.model, options)
    trials = _inputs(options, problem)
    levels = _levels(options.objective)
    result = _search(options, problem)
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        directory = pathlib.Path(name)
        proposed = _propose(options, problem, result)
        candidates = list(verify(options.model, proposed, trials, directory, levels[0]))
        for one in candidates:
            if one.refused:
                say(f"refused: {one.refused}")
        selection = _select(options, result, candidates, trials[-1], levels)
        ratios = _account(options, selection, trials[-1], levels[0], directory)
    _write(options, selection)
    outcome = report.Outcome(
        model=problem.name,
        output=str(options.output),
        objective=options.objective,
        before=problem.graph,
        result=result,
        selection=selection,
        ratios=ratios,
        bound=_bound(options, problem),
        seconds=time.monotonic() - began_s,
    )
    if options.report is not None:
        _replace(options.report, page.make_page(outcome).encode())
    if options.checkpoint is not None and result.stopped != INTERRUPTED:
        options.checkpoint.unlink(missing_ok=True)
    if options.json:
        show_json(outcome.to_json())
    else:
        show(outcome.to_text())
    return 0


def _check_places(options: argparse.Namespace) -> None:
    """Says what cannot be written before anything takes long."""
    for path in (options.output, options.report, options.checkpoint):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: expected a directory {path.parent}, found none; make it")
    if options.output.exists() and options.output.samefile(options.model):
        raise UserError(f"{options.output}: expected another file than the model; name another")


def _inputs(options: argparse.Namespace, problem: Problem) -> list[Mapping[str, np.ndarray]]:
    """What candidates are compared on; the last is what they are measured on."""
    model = onnx.load(options.model, load_external_data=False)
    own = [load_inputs(options.inputs, model)] if options.inputs is not None else []
    try:
        drawn = [random_inputs(model, seed, problem.sizes) for seed in range(_NUM_TRIALS)]
    except UserError:
        if not own:
            raise
        drawn = []
    return [*drawn, *own]


def _levels(objective: str) -> list[Backend]:
    """What the objective runs on, then the same with less optimisation."""
    if objective == "openvino":
        return [backend("openvino")]
    name = "onnxruntime-cuda" if objective == "onnxruntime-cuda" else "onnxruntime"
    return [backend(name + suffix) for suffix in ("", "-extended", "-basic", "-disable")]


def _search(options: argparse.Namespace, problem: Problem) -> Result:
    budget = Budget(options.seconds, _most_expansions(options))
    with _teller() as tell:

        def on_progress(progress: Progress) -> None:
            gain = 100 * (1 - progress.best_cost_ms / max(problem.start.cost_ms, 1e-12))
            tell(
                f"searching: {progress.expansions} expansions, estimate {-gain:+.1f}% "
                f"({progress.seconds:.0f} s)"
            )

        result = problem.search(
            options.method,
            budget,
            policy_of(options),
            options.rollouts,
            on_progress=on_progress,
            resume_file=options.checkpoint,
        )
    if result.stopped == INTERRUPTED:
        say("search interrupted; going on with the best so far (Ctrl-C again ends the program)")
    return result


def _propose(options: argparse.Namespace, problem: Problem, result: Result) -> list[Visited]:
    """What to run: the search's best and others on its way, and the best by other estimates."""
    found = {one.state.graph: one for one in proposals(result.candidates[0])}
    if options.measure and result.stopped != INTERRUPTED:
        budget = Budget(options.seconds * _OTHERS, _most_expansions(options))
        for one in problem.others:
            other = one.search(options.method, budget, policy_of(options), options.rollouts)
            here = replay(Visited(problem.start), other.path)
            for visited in proposals(here, most=2):
                found.setdefault(visited.state.graph, visited)
    return list(found.values())


def _most_expansions(options: argparse.Namespace) -> float:
    return float("inf") if options.expansions is None else options.expansions


def _select(
    options: argparse.Namespace,
    result: Result,
    candidates: Sequence[Candidate],
    inputs: Mapping[str, np.ndarray],
    levels: Sequence[Backend],
) -> Selection:
    if not candidates and not result.expansions:
        return Selection(None, f"none of the rules applies ({result.stopped})", ())
    right = [one for one in candidates if not one.refused]
    if right and not options.measure:
        return Selection(right[0], "", tuple(candidates))
    with _teller() as tell:
        return select(options.model, candidates, inputs, levels, options.measure_seconds, tell=tell)


def _account(
    options: argparse.Namespace,
    selection: Selection,
    inputs: Mapping[str, np.ndarray],
    on: Backend,
    directory: pathlib.Path,
) -> list[float]:
    """What `accounting.shares` needs to tell what each rule saves."""
    if selection.chosen is None or not options.measure:
        return []
    visited = selection.chosen.visited
    seconds = options.measure_seconds / 10
    return accounting.measure(options.model, visited, inputs, on, directory, seconds)


def _bound(options: argparse.Namespace, problem: Problem) -> Bound | None:
    if not options.bound:
        return None
    if num_operators(problem.graph) > _MOST_BOUNDED:
        say(f"no bound: the graph has more than {_MOST_BOUNDED} operators")
        return None
    return bound(problem.graph, problem.rules, problem.objective, seconds=_BOUND_S)


def _write(options: argparse.Namespace, selection: Selection) -> None:
    """Puts the model in its place, or a copy of the one that was given."""
    if selection.chosen is not None:
        graph = selection.chosen.visited.state.graph
        assert isinstance(graph, Graph)
        save(graph, options.output)
        return
    _copy_weights(options.model, options.output)
    _replace(options.output, options.model.read_bytes())


def _copy_weights(model: pathlib.Path, output: pathlib.Path) -> None:
    """Files that a copied model refers to have to lie beside it."""
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
    """Writes a file at once or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _teller() -> Iterator[Callable[[str], None]]:
    """Tells of something that is under way: in place on a terminal, else now and then."""
    import sys

    if not sys.stderr.isatty():
        last_s = time.monotonic()

        def tell_line(message: str) -> None:
            nonlocal last_s
            if time.monotonic() - last_s > 30:
                last_s = time.monotonic()
                say(f"  {message}")

        yield tell_line
        return
    from rich import console

    with console.Console(stderr=True).status("") as status:
        yield status.update
