"""Optimisation of one model: search, check the candidates, measure them, write the fastest."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from environments import files
from environments.errors import UsageError, UserError
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.sizes import NONE_OPEN
from environments.tensor_graphs.execution.trials import Trials
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.search import (
    EXHAUSTED,
    INTERRUPTED,
    OUT_OF_TIME,
    Result,
    Visited,
)
from environments.tensor_graphs.selection.leaving_out import Account, LeavingOut
from environments.tensor_graphs.selection.selection import Selection, Selector, first_right
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.bounding import bound_of
from tfrl_systems.systems.tensor_graphs.evaluating import Searching
from tfrl_systems.systems.tensor_graphs.optimize import page
from tfrl_systems.systems.tensor_graphs.optimize.checking import Checking
from tfrl_systems.systems.tensor_graphs.optimize.freezing import frozen
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome
from tfrl_systems.systems.tensor_graphs.optimize.stages import Found, Stages, Tell
from tfrl_systems.systems.tensor_graphs.optimize.writing import data_of, write
from tfrl_systems.systems.tensor_graphs.original import Original, levels_of
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting

if TYPE_CHECKING:
    from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

_BOUND_S = 60.0
# All of it may take the seconds of the searches, twice those of a final measurement, and so many.
_BESIDE_S = 30.0
# Seconds of these that are left for starting the program and for writing the model.
_WRITING_S = 8.0
# Parts of the time after the search: for checking candidates, and for choosing one of them.
_CHECKING, _CHOOSING = 0.3, 0.85

METHODS = ("regions", "greedy", "taso", "beam", "policy")
_WITH_POLICY = ("regions", "policy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization(Searching, Rewriting):
    """What to optimise, and how.

    Attributes:
      model: the model, an ONNX file.
      output: file to write the faster model to.
      method: how to search (see tfrl evaluate tensor_graphs --help).
      policy: directory of a policy that tfrl train tensor_graphs learned; it leads the search of
        --method regions, or plays alone with --method policy.
      seconds: the time for all searches together, with the measurements of operators for them.
      strict: leave out rules that may change NaN or infinity, and those that may lose digits where
        large numbers cancel (see tfrl rules list); and what onnxruntime no longer runs at a size of
        0 with all its optimisation.
      measure: measure candidates end to end; without it the estimate decides.
      measure_seconds: seconds of each final measurement; longer measurements detect smaller gains.
      dimensions: sizes for a dimension that the model leaves open, by the file's own name or as
        INPUT[AXIS]; the first leads the search, and the result is slower at none of them. Without
        it a batch is 1, others are found by trying, and half and double of them are measured too.
      inputs: file with an array for each of the model's inputs, by name, to compare outputs on and
        to measure with; its sizes are used as if they were given.
      freeze: give the written model the sizes that it is optimised at as fixed ones; what they make
        constant is computed beforehand.
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
    inputs: tuple[pathlib.Path, ...] = option((), metavar="FILE.npz")
    freeze: bool = False
    bound: bool = False
    checkpoint: pathlib.Path | None = option(None, metavar="FILE")
    report: pathlib.Path | None = option(None, metavar="FILE.html")

    def __post_init__(self) -> None:
        """Accept a single path as the inputs."""
        super().__post_init__()
        given = [self.inputs] if isinstance(self.inputs, str | pathlib.Path) else self.inputs
        object.__setattr__(self, "inputs", tuple(map(pathlib.Path, given)))
        for name, sizes in self.dimensions if self.freeze else ():
            if len(sizes) > 1:
                found = f"{name}={','.join(map(str, sizes))}"
                raise UsageError(
                    f"--freeze: expected one size for each dimension, found {found}; give one"
                )

    def load_policy(self) -> GraphPolicy | None:
        """Load the policy, if there is one; else return None.

        Raises:
          UserError: the policy cannot be read.
          UsageError: the method needs a policy and none is given, or it takes none.
        """
        if self.method == "policy" and self.policy is None:
            raise UsageError("--method policy: expected --policy DIR with it, found none; give one")
        if self.policy is not None and self.method not in _WITH_POLICY:
            raise UsageError(
                f"--policy: expected --method {' or '.join(_WITH_POLICY)} with it, found "
                f"{self.method}; give one of them"
            )
        if self.policy is None:
            return None
        # Only a policy needs TensorFlow, which takes seconds to import.
        from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

        return GraphPolicy.load(self.policy)


def optimize(asked: Optimization, reporter: Reporter) -> Outcome:
    """Write a faster model; if none is found, write a copy of the model.

    Raises:
      UserError: a file cannot be read or written, or an option cannot be used.
    """
    began_s = time.monotonic()
    _check_places(asked)
    policy = asked.load_policy()
    original = Original(str(asked.model), asked.model, levels_of(asked.objective))
    own = original.load_trials(asked.inputs)
    try:
        choice = original.choose(dict(asked.dimensions), own)
        if asked.freeze:
            choice = frozen(original, choice, own)
        trials = original.make_trials(choice, own, asked.freeze)
    except NoInputsError as error:
        if asked.freeze:
            raise
        outcome = _untried(asked, original, str(error))
    else:
        if choice.chosen:
            reporter.say(f"sizes: {choice.points[0]}; to change what was chosen: {choice.hint}")
        inputs = trials.measured[0].inputs
        problem = GraphProblem.at(original, asked, choice, asked.strict, inputs)
        outcome = _Optimizer(asked, original, problem, trials, reporter, began_s).run(policy)
    shapes = dict(outcome.choice.points[0].shapes) if asked.freeze else None
    write(asked.model, asked.output, outcome.after if outcome.visited else None, shapes)
    outcome = dataclasses.replace(outcome, seconds=time.monotonic() - began_s)
    if asked.report is not None:
        files.replace(asked.report, page.make_page(outcome).encode())
    if asked.checkpoint is not None and outcome.result.stopped != INTERRUPTED:
        asked.checkpoint.unlink(missing_ok=True)
    return outcome


class _Optimizer:
    """Optimises a model whose sizes are chosen."""

    def __init__(
        self,
        asked: Optimization,
        original: Original,
        problem: GraphProblem,
        trials: Trials,
        reporter: Reporter,
        began_s: float,
    ) -> None:
        self._asked = asked
        self._original = original
        self._problem = problem
        self._trials = trials
        self._reporter = reporter
        self._levels = original.levels
        self._began_s = began_s
        # Without elements, a model may need less optimisation than before, unless --strict.
        self._below = None if asked.strict or len(self._levels) < 2 else self._levels[1]

    def run(self, policy: GraphPolicy | None) -> Outcome:
        """Search, check, and measure; return the outcome, whose model is not written yet."""
        asked, problem = self._asked, self._problem
        found = self._search(policy)
        with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
            directory = pathlib.Path(name)
            selection = self._select(found, directory)
            selection, account = self._leave_out(selection, directory)
        return Outcome(
            model=problem.name,
            output=str(asked.output),
            objective=asked.objective,
            strict=asked.strict,
            before=problem.graph,
            found=found,
            selection=selection,
            choice=problem.choice,
            note="; ".join(filter(None, (self._trials.note, _limit_of(selection)))),
            account=account,
            bound=bound_of(problem, _BOUND_S, self._reporter) if asked.bound else None,
        )

    def _search(self, policy: GraphPolicy | None) -> Found:
        asked = self._asked
        with self._reporter.status() as tell:
            stages = Stages(
                self._problem,
                asked.method,
                asked.budget,
                began_s=self._began_s,
                tell=tell,
                policy=policy,
                num_rollouts=asked.rollouts,
                has_others=asked.measure,
            )
            found = stages.run(resume_file=asked.checkpoint)
        if found.result.stopped == INTERRUPTED:
            self._reporter.say(
                "search interrupted; going on with the best so far (Ctrl-C again ends the program)"
            )
        if asked.freeze:
            # The model itself may have become faster, where its sizes make values constant.
            proposed = (*found.proposed, Visited(self._problem.start))
            found = dataclasses.replace(found, proposed=proposed)
        return found

    def _select(self, found: Found, directory: pathlib.Path) -> Selection:
        """Check the candidates, and choose one of those that are right."""
        if not found.proposed and not found.result.expansions:
            return Selection(None, _why_nothing(found.result.stopped), ())
        reference, trials = self._original.reference, self._trials
        if trials.unseen:
            return Selection(None, _why_unseen(trials.unseen), ())
        with self._reporter.status() as tell:
            tell("comparing the outputs of candidates")
            candidates = self._checking(directory).run(found.proposed)
            if not self._asked.measure:
                return first_right(reference, candidates, trials.others, self._levels[0])
            return self._selector(tell, self._share_s(_CHOOSING)).select(candidates)

    def _checking(self, directory: pathlib.Path) -> Checking:
        rules = (*self._problem.rules, *self._problem.block_rules)
        return Checking(
            self._original.reference,
            self._trials.compared,
            directory,
            self._levels[0],
            self._below,
            lossy=frozenset(rule.name for rule in rules if rule.may_lose_digits),
            until_fn=lambda: self._share_s(_CHECKING),
            reporter=self._reporter,
        )

    def _share_s(self, share: float) -> float:
        """Return when a share of the time that is left will be over, by `time.monotonic`."""
        asked, now_s = self._asked, time.monotonic()
        all_s = asked.budget.seconds + 2 * asked.measure_seconds + _BESIDE_S - _WRITING_S
        return now_s + share * max(0.0, self._began_s + all_s - now_s)

    def _selector(self, tell: Tell, until_s: float) -> Selector:
        asked, reference = self._asked, self._original.reference
        seconds = asked.measure_seconds
        return Selector(asked.model, reference, self._trials, self._levels, seconds, tell, until_s)

    def _leave_out(
        self, selection: Selection, directory: pathlib.Path
    ) -> tuple[Selection, Account | None]:
        """Leave out what measured slower; measure what each of the other rules saves."""
        asked = self._asked
        if selection.chosen is None or not asked.measure:
            return selection, None
        with self._reporter.status() as tell:
            leaving_out = LeavingOut(
                asked.model,
                self._original.reference,
                self._trials,
                self._levels[0],
                directory,
                asked.measure_seconds / 10,
                self._share_s(1.0),
                tell,
                self._below,
            )
            return leaving_out.run(selection, self._selector(tell, self._share_s(1.0)))


def _limit_of(selection: Selection) -> str:
    """Return what the chosen candidate does not do as the model does; "" for nothing."""
    chosen = selection.chosen
    if chosen is None or chosen.equivalence is None or not chosen.equivalence.is_limited:
        return ""
    return (
        "at a size of 0 onnxruntime runs it only without its layout optimisation "
        "(ORT_ENABLE_EXTENDED); --strict leaves such changes out"
    )


def _why_unseen(outputs: Sequence[str]) -> str:
    names = ", ".join(map(repr, outputs))
    return (
        f"output {names} has no finite number on any inputs that were tried, so no change could be "
        "seen; give inputs with --inputs FILE.npz"
    )


def _why_nothing(stopped: str) -> str:
    """Return why a search came to nothing, by why it stopped."""
    if stopped == OUT_OF_TIME:
        return "there was no time to search; give more --seconds"
    return f"none of the rules applies ({stopped})"


def _untried(asked: Optimization, original: Original, reason: str) -> Outcome:
    """Return the outcome for a model that could not be run, so that nothing was tried."""
    start = Engine((), AnalyticObjective()).start(original.graph)
    result = Result(asked.method, start, (), (), start.cost_ms, 0, 0.0, EXHAUSTED, 0)
    return Outcome(
        model=original.name,
        output=str(asked.output),
        objective=asked.objective,
        strict=asked.strict,
        before=original.graph,
        found=Found(result, ()),
        selection=Selection(None, reason, ()),
        choice=Choice((NONE_OPEN,)),
    )


def _check_places(asked: Optimization) -> None:
    """Raise an error before anything takes long, if a file could not be written at the end."""
    others = [*filter(None, (asked.model, asked.rules)), *asked.inputs]
    places = [*filter(None, (asked.output, asked.report, asked.checkpoint))]
    if any(map(files.exists, places)):
        others += data_of(asked.model)
    for path in places:
        files.check_place(path)
        for other in others:
            is_same = path.exists() and other.exists() and path.samefile(other)
            if is_same or path.absolute() == other.absolute():
                what = "the model" if other == asked.model else str(other)
                raise UserError(f"{path}: expected another file than {what}; name another")
        others.append(path)
