"""Searching: states to check, within the time that there is, the cheapest information first.

  places     where rules apply; if there is none, nothing else is worth any time
  removal    what only removes computations, which pays without a search
  walk       the steps of the policy that comes along, which knows of measured costs before any is
             measured here; where they end is checked and measured as a whole model at once
  formula    a search from there, by costs that are worked out, not measured, but know what
             onnxruntime runs as one kernel; its end is checked and measured as a whole model at
             once, so that this is done on a busy machine too; if it is wrong or seems slower, so is
             the end of the removal
  operators  measurements of operators: those that the search by formula changed or made come first,
             then those that rules may change; the largest come first
  portable   with --contrib, a search without those operators, by the measured costs
  search     the main search, by the measured costs
  singly     a search by costs of single operators, which a backend may fuse or not

Each stage has an end, counted from the beginning of everything. A stage that takes less leaves its
time to those after it. Costs that are not known when the time for measuring is over are estimated.
Where no time is left to measure operators, a search by estimates of them would only repeat that by
formula, so what the policy or this has found is proposed, and the time goes into measuring it. On a
busy machine what the policy found is enough for that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.search import (
    EXHAUSTED,
    INTERRUPTED,
    Budget,
    Progress,
    Result,
    State,
    Visited,
    replay,
)
from environments.tensor_graphs.selection.blocking import blocked
from environments.tensor_graphs.selection.candidates import worth_measuring
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.checkpoint import Checkpoint
from tfrl_systems.systems.tensor_graphs.optimize.measuring_order import measuring_order
from tfrl_systems.systems.tensor_graphs.optimize.task import Task
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

# A search measures the new operators that it meets for this share of its time. In the rest it
# estimates them, which is so much faster that it comes much farther.
_MEASURING = 0.4
# Removal takes so many seconds if it needs them.
_REMOVAL_S = 3.0
# A time that is too short to tell how busy the machine is.
_CLOCK_S = 0.01
_ONE_OPERATOR_S = 0.5
# Where the steps of the policy that comes along save so much, and the machine is so many times
# slower than a quiet one, there is no search by formula.
_ENOUGH, _BUSY = 0.98, 1.5
# A search that has found nothing after this share of its time is given up.
_PATIENCE = 0.7
# This many states are checked and measured as whole models, and so many of them from the trail of
# the main search, and of each search by another estimate.
_NUM_PROPOSED, _NUM_ON_TRAIL, _NUM_OF_OTHERS = 7, 5, 3


class _Ends(NamedTuple):
    """When each stage ends, as a share of the seconds that are left when all begin.

    Removal and the walk have what the search by formula has.

    Attributes:
      least_formula: share of all seconds that the search by formula takes, however few are left: a
        busy machine may have spent all on starting the program. There the search has as much of the
        processor as on a quiet one, but not more seconds than removal.
    """

    formula: float
    operators: float
    portable: float
    least_formula: float


_ON_ONE_THREAD = _Ends(0.15, 0.45, 0.65, least_formula=0.3)
# The formula is that of one thread: on two, a Gemm of few rows takes twice as long, a Transpose
# three times. So there the time goes into measuring operators.
_ON_THREADS = _Ends(0.05, 0.6, 0.7, least_formula=0.0)
_SEARCH_END, _SINGLY_END = 0.85, 1.0

Tell = Callable[[str], None]
LookAt = Callable[[Visited], float]
"""Checks and measures a state; returns the share of the model's time that it is expected to take,
infinite where it is wrong."""


@dataclasses.dataclass(frozen=True)
class Proposals:
    """What the stages propose.

    Attributes:
      result: the result of the main search.
      states: states to check and to measure, the likeliest first.
      num_measured: operators or groups of operators that were measured, not found in the table.
      num_estimated: those whose cost was estimated by a formula.
      seconds: wall time from the beginning of everything to the end of the last stage.
    """

    result: Result
    states: tuple[Visited, ...]
    num_measured: int = 0
    num_estimated: int = 0
    seconds: float = 0.0


def search(task: Task, reporter: Reporter, look_at: LookAt = lambda _: 1.0) -> Proposals:
    """Search for states that cost less; `look_at` measures early what the first stages found."""
    with reporter.status() as tell:
        proposals = _Stages(task, tell, look_at).run()
    if proposals.result.stopped == INTERRUPTED:
        reporter.say(
            "search interrupted; going on with the best so far (Ctrl-C again ends the program)"
        )
    if task.request.freeze:
        # The model itself may have become faster, where its sizes make values constant.
        states = (*proposals.states, Visited(task.problem.start))
        proposals = dataclasses.replace(proposals, states=states)
    return proposals


class _Stages:
    def __init__(self, task: Task, tell: Tell, look_at: LookAt) -> None:
        self._task, self._problem, self._request = task, task.problem, task.request
        self._tell, self._look_at = tell, look_at
        self._began_s = time.monotonic()
        self._ends = _ON_ONE_THREAD if task.request.threads == 1 else _ON_THREADS
        objective = task.problem.objective
        self._measured = objective if isinstance(objective, MeasuredObjective) else None
        # The candidates of other estimates than the main one must be measured.
        self._has_others = task.request.measure and self._measured is not None
        self._interrupted = False
        # How many times more seconds pass than the processor works for this program.
        self._slowdown = 1.0
        # What only removes computations, if it is not where the main search begins.
        self._sure: Visited | None = None
        # What the policy that comes along came to, if it took a step.
        self._walked: Result | None = None
        # What the state that was looked at last is expected to take of the model's time.
        self._expected_ratio = 1.0

    def run(self) -> Proposals:
        by_formula = self._problem.by_formula if self._measured else self._problem
        self._tell("looking for places where rules apply")
        with self._measuring_slowdown():
            has_matches = bool(by_formula.start.matches)
        if not has_matches:
            return self._propose(nothing_to_search(self._request.method, by_formula.start), [])
        results = []
        # The formula is cheap, and its best graph shows which operators are worth measuring.
        removal = None
        # Other methods search by themselves, from the model.
        if self._request.method == "regions" and (self._has_others or self._measured is None):
            removal = self._remove(by_formula)
        if self._has_others:
            self._sure = removal.best if removal is not None and removal.best.path else None
            self._walk(by_formula, removal)
            is_enough = self._expected_ratio < _ENOUGH
            if self._walked and is_enough and self._is_late and self._slowdown > _BUSY:
                return self._propose_at_once(by_formula, self._walked)
            result = self._search_by_formula(by_formula, removal)
            if (result.path or self._walked) and self._is_late:
                return self._propose_at_once(by_formula, result)
            results.append(result)
        seen = [*results, self._walked] if self._walked else results
        self._measure_operators(by_formula.start, [result.best for result in seen])
        self._problem = by_formula.with_objective(self._problem.objective)
        start, method = self._problem.start, self._request.method
        checkpoint = Checkpoint(self._request.checkpoint, method, start)
        earlier = checkpoint.read() or (None if self._measured else removal)
        if self._request.contrib and method == "regions":
            portable = self._search(
                self._problem.without_contrib(), self._ends.portable, "for all runtimes"
            )
            results.append(portable)
            earlier = self._further(portable, earlier)
        result = self._search(self._problem, _SEARCH_END, "", earlier, checkpoint)
        if self._has_others and self._measured is not None:
            alone = self._measured.alone
            alone.deadline_s = self._end_s(_SEARCH_END + _MEASURING * (_SINGLY_END - _SEARCH_END))
            singly = self._problem.with_objective(alone)
            results.append(self._search(singly, _SINGLY_END, "by single operators"))
        # Ctrl-C may have come in another search than the main one.
        if self._interrupted:
            result = dataclasses.replace(result, stopped=INTERRUPTED)
        return self._propose(result, results)

    @property
    def _is_late(self) -> bool:
        """Whether no time is left to measure operators, nor another search goes on."""
        is_over = time.monotonic() >= self._end_s(self._ends.operators)
        return is_over and not self._interrupted and self._request.checkpoint is None

    @contextlib.contextmanager
    def _measuring_slowdown(self) -> Iterator[None]:
        """Note how busy the machine is while this program does nothing but compute."""
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        yield
        cpu_s = max(time.process_time() - began_cpu_s, _CLOCK_S)
        self._slowdown = max(1.0, (time.monotonic() - began_s) / cpu_s)

    def _end_s(self, share: float) -> float:
        end_s = self._task.began_s + self._request.seconds
        return self._began_s + share * max(0.0, end_s - self._began_s)

    def _remove(self, by_formula: GraphProblem) -> Progress:
        """Take what only removes computations; return how far that has come."""
        self._tell("removing computations")
        budget = Budget(self._early_s, self._request.budget.expansions)
        result = by_formula.search("removal", budget)
        self._interrupted |= result.stopped == INTERRUPTED
        return Progress(result.expansions, 0.0, result.candidates[0])

    @property
    def _early_s(self) -> float:
        """Seconds for what comes before the search by formula, each time it is asked for."""
        left_s = self._end_s(self._ends.formula) - time.monotonic()
        return max(left_s, min(self._request.seconds, _REMOVAL_S))

    def _walk(self, by_formula: GraphProblem, removal: Progress | None) -> None:
        """Take the steps of the policy that comes along, and have their end measured.

        If what only removes computations gets farther even by formula, no measurement is spent.
        """
        if self._task.reading.walker is None or self._interrupted:
            return
        self._tell("taking the steps of the policy that comes along")
        try:
            result = by_formula.walk(self._task.reading.walker, time.monotonic() + self._early_s)
            reached = removal.best_cost_ms if removal is not None else math.inf
            if result.path and result.best.cost_ms <= reached:
                self._walked = result
                self._expected_ratio = self._look_at(result.candidates[0])
        except KeyboardInterrupt:
            self._interrupted = True

    def _search_by_formula(self, by_formula: GraphProblem, removal: Progress | None) -> Result:
        """Search by formula, and have the best of that measured."""
        ends = self._ends
        least_s = min(ends.least_formula * self._request.seconds * self._slowdown, _REMOVAL_S)
        result = self._search(by_formula, ends.formula, "by formula", removal, least_s=least_s)
        if result.path and not self._interrupted:
            self._tell("measuring what the search by formula found")
            try:
                self._expected_ratio = self._look_at(result.candidates[0])
                if self._expected_ratio > 1 and self._sure is not None:
                    self._look_at(self._sure)
            except KeyboardInterrupt:
                self._interrupted = True
        return result

    def _further(self, portable: Result, earlier: Progress | None) -> Progress:
        """Return where the search with onnxruntime's own operators begins.

        What is best without them is the least that it ends with, and is measured too.
        """
        visited = replay(Visited(self._problem.start), portable.path)
        progress = Progress(portable.expansions, 0.0, visited)
        if earlier is not None and earlier.best_cost_ms < progress.best_cost_ms:
            return earlier
        return progress

    def _search(
        self,
        problem: GraphProblem,
        share: float,
        how: str,
        earlier: Progress | None = None,
        checkpoint: Checkpoint | None = None,
        least_s: float = 0.0,
    ) -> Result:
        """Search until a share of the time is over, or not at all after Ctrl-C.

        `how` tells this search from others, for people. It goes on from `earlier`, or from the
        start, and has `least_s` seconds in any case, but not after Ctrl-C.
        """
        label = f"searching {how}".strip()
        self._tell(label)
        start_ms = problem.start.cost_ms
        measured = problem.objective if isinstance(problem.objective, MeasuredObjective) else None

        def on_progress(progress: Progress) -> None:
            gain = 100 * (1 - progress.best_cost_ms / max(start_ms, 1e-12))
            self._tell(
                f"{label}: {progress.expansions} expansions, estimate {-gain:+.1f}% "
                f"({time.monotonic() - self._task.began_s:.0f} s)"
            )
            if checkpoint is not None:
                checkpoint.save_sometimes(progress)

        left_s = 0.0
        if not self._interrupted:
            left_s = max(least_s, self._end_s(share) - time.monotonic())
        if measured is not None:
            measured.deadline_s = time.monotonic() + _MEASURING * left_s
        result = problem.search(
            self._request.method,
            Budget(left_s, self._request.budget.expansions, _PATIENCE * left_s),
            self._task.reading.policy,
            self._request.rollouts,
            on_progress=on_progress,
            earlier=earlier,
        )
        if checkpoint is not None:
            checkpoint.save(result.candidates[0], result.expansions)
        self._interrupted |= result.stopped == INTERRUPTED
        return result

    def _measure_operators(self, start: Any, cheaper: Sequence[Any]) -> None:
        """Measure operators in `measuring_order`, until the stage's time is over or Ctrl-C."""
        if self._measured is None:
            return
        measured = self._measured
        order = measuring_order(start, cheaper)
        # One is measured however late it is: without any, estimates would be of another machine.
        end_s = self._end_s(self._ends.operators)
        measured.deadline_s = max(end_s, time.monotonic() + _ONE_OPERATOR_S)
        try:
            for place, (graph, number) in enumerate(order):
                if self._interrupted or (place and time.monotonic() >= end_s):
                    break
                self._tell(f"measuring operators: {place} of {len(order)}")
                measured.node_cost_ms(graph, number)
                if measured.num_measured:
                    measured.deadline_s = end_s
        except KeyboardInterrupt:
            self._interrupted = True
        if self._interrupted:
            measured.deadline_s = -math.inf

    def _propose_at_once(self, by_formula: GraphProblem, result: Result) -> Proposals:
        """Propose what the policy or the search by formula ended with, and no more."""
        self._problem = by_formula
        if self._expected_ratio <= 1:
            self._sure = None
        graph, costs_ms = by_formula.start.graph, by_formula.start.node_costs_ms
        num_estimated = len({graph.nodes[number].label for number in costs_ms})
        proposals = self._propose(result, [], max_states=1)
        return dataclasses.replace(proposals, num_estimated=num_estimated)

    def _propose(
        self, result: Result, others: list[Result], max_states: int = _NUM_ON_TRAIL
    ) -> Proposals:
        """Choose states to check: on the searches' trails, and their ends after the block rules."""
        trails = [worth_measuring(result.candidates[0], max_states)]
        for by_estimate in others:
            visited = replay(Visited(self._problem.start), by_estimate.path)
            trails.append(worth_measuring(visited, max_states=_NUM_OF_OTHERS))
        paths = [early.path for early in (self._walked, self._sure) if early is not None]
        trails += [[replay(Visited(self._problem.start), path)] for path in paths]
        ends = [trail[0] for trail in trails if trail]
        if not ends and result.expansions:
            ends = [Visited(self._problem.start)]
        trails.append([state for end in ends if (state := self._blocked(end)) is not None])
        proposed: dict[object, Visited] = {}
        # Each search's likeliest state comes before any search's second one.
        for state in itertools.chain.from_iterable(itertools.zip_longest(*trails)):
            if state is not None and len(proposed) < _NUM_PROPOSED:
                proposed.setdefault(state.state.graph, state)
        measured = self._measured
        return Proposals(
            result,
            tuple(proposed.values()),
            measured.num_measured if measured else 0,
            measured.num_estimated if measured else 0,
            time.monotonic() - self._task.began_s,
        )

    def _blocked(self, visited: Visited) -> Visited | None:
        """Return a state after the block rules; None if none matches, or all time is over."""
        if self._task.is_over:
            return None
        if not self._problem.has_block_rules_for(visited.state.graph):
            return None
        replayed = replay(Visited(self._problem.start_with_block_rules), visited.path)
        in_blocks = blocked(replayed)
        return None if in_blocks is replayed else in_blocks


def nothing_to_search(method: str, start: State) -> Result:
    """Return the result of a search that has nothing to do."""
    return Result(method, start, (), (Visited(start),), start.cost_ms, 0, 0.0, EXHAUSTED, 0)
