"""The search for candidates within the time that was asked for, the cheapest information first.

  places     where rules apply; if there is none, nothing else is worth any time
  formula    a search by costs that are worked out, not measured
  operators  measurements of operators: those that the search by formula changed or made come first,
             then those that rules may change; the largest come first
  search     the main search, by the measured costs
  singly     a search by costs of single operators, which a backend may fuse or not

Each stage has an end, counted from the beginning of everything. A stage that takes less leaves its
time to those after it. Costs that are not known when the time for measuring is over are estimated.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.search import (
    EXHAUSTED,
    INTERRUPTED,
    Budget,
    Progress,
    Result,
    Visited,
    replay,
)
from environments.tensor_graphs.search.neighbourhoods import nodes_of
from environments.tensor_graphs.selection.blocking import blocked
from environments.tensor_graphs.selection.candidates import worth_measuring
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

if TYPE_CHECKING:
    from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

# The end of each stage, as a share of the seconds that are left when the stages begin.
_FORMULA, _OPERATORS, _SEARCH, _SINGLY = 0.15, 0.45, 0.85, 1.0
# A search measures the new operators that it meets for this share of its time. In the rest it
# estimates them, which is so much faster that it comes much farther.
_MEASURING = 0.4
# A search that has found nothing after this share of its time is given up.
_PATIENCE = 0.7
# This many states are checked and measured as whole models, and so many of them from the trail of
# each search by another estimate.
_NUM_PROPOSED, _NUM_OF_OTHERS = 7, 3

Tell = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Found:
    """What the stages found.

    Attributes:
      result: the result of the main search.
      proposed: states to check and to measure, the likeliest first.
      num_measured: operators or groups of operators that were measured, not found in the table.
      num_estimated: those whose cost was estimated by a formula.
      seconds: wall time from the beginning of everything to the end of the last stage.
    """

    result: Result
    proposed: tuple[Visited, ...]
    num_measured: int = 0
    num_estimated: int = 0
    seconds: float = 0.0


class Stages:
    """Runs the stages for one model."""

    def __init__(
        self,
        problem: GraphProblem,
        method: str,
        budget: Budget,
        *,
        began_s: float,
        tell: Tell,
        policy: GraphPolicy | None = None,
        num_rollouts: int = 64,
        has_others: bool = True,
    ) -> None:
        """Make the stages; nothing runs yet.

        Args:
          problem: the model, the rules and the objective.
          method: how to search.
          budget: the seconds for all stages together, and the expansions for each search.
          began_s: when everything began, by `time.monotonic`.
          tell: called with what is being done.
          policy: see `GraphProblem.search`.
          num_rollouts: episodes that the policy plays.
          has_others: whether to search by other estimates too, whose candidates must be measured.
        """
        self._problem = problem
        self._method = method
        self._budget = budget
        self._began_s, self._stages_began_s = began_s, time.monotonic()
        self._tell = tell
        self._arguments = (policy, num_rollouts)
        objective = problem.objective
        self._measured = objective if isinstance(objective, MeasuredObjective) else None
        self._has_others = has_others and self._measured is not None
        self._interrupted = False

    def run(self, **others: Any) -> Found:
        """Run all stages.

        Args:
          **others: further arguments of the main search; see `search.search`.
        """
        by_formula = dataclasses.replace(
            self._problem, objective=AnalyticObjective(sizes=self._problem.sizes)
        )
        self._tell("looking for places where rules apply")
        if not by_formula.start.matches:
            return self._found(_nothing(self._method, by_formula), [])
        additional = [by_formula] if self._has_others else []
        results = [self._search(one, _FORMULA, "by formula") for one in additional]
        self._measure_operators(by_formula.start, [one.best for one in results])
        result = self._search(self._problem, _SEARCH, "", **others)
        if self._has_others and self._measured is not None:
            alone = self._measured.alone
            alone.deadline_s = self._end_s(_SEARCH + _MEASURING * (_SINGLY - _SEARCH))
            singly = dataclasses.replace(self._problem, objective=alone)
            results.append(self._search(singly, _SINGLY, "by single operators"))
        if self._interrupted:
            result = dataclasses.replace(result, stopped=INTERRUPTED)
        return self._found(result, results)

    def _end_s(self, share: float) -> float:
        end_s = self._began_s + self._budget.seconds
        return self._stages_began_s + share * max(0.0, end_s - self._stages_began_s)

    def _search(self, problem: GraphProblem, share: float, how: str, **others: Any) -> Result:
        """Search until a share of the time is over, or not at all after Ctrl-C."""
        label = f"searching {how}".strip()
        self._tell(label)
        start_ms = problem.start.cost_ms
        measured = problem.objective if isinstance(problem.objective, MeasuredObjective) else None

        def on_progress(progress: Progress) -> None:
            gain = 100 * (1 - progress.best_cost_ms / max(start_ms, 1e-12))
            self._tell(
                f"{label}: {progress.expansions} expansions, estimate {-gain:+.1f}% "
                f"({time.monotonic() - self._began_s:.0f} s)"
            )

        left_s = 0.0 if self._interrupted else max(0.0, self._end_s(share) - time.monotonic())
        if measured is not None:
            measured.deadline_s = time.monotonic() + _MEASURING * left_s
        budget = Budget(left_s, self._budget.expansions, _PATIENCE * left_s)
        arguments: dict[str, Any] = {"on_progress": on_progress, **others}
        found = problem.search(self._method, budget, *self._arguments, **arguments)
        self._interrupted |= found.stopped == INTERRUPTED
        return found

    def _measure_operators(self, start: Any, found: Sequence[Any]) -> None:
        """Measure operators, until the stage's time is over or Ctrl-C.

        Args:
          start: the state of the model, with costs by formula.
          found: states that are cheaper by formula.
        """
        if self._measured is None:
            return
        measured = self._measured
        order = [pair for state in found for pair in _changed(start, state)] + _near(start)
        end_s = measured.deadline_s = self._end_s(_OPERATORS)
        try:
            for place, (graph, number) in enumerate(order):
                if self._interrupted or time.monotonic() >= end_s:
                    break
                self._tell(f"measuring operators: {place} of {len(order)}")
                measured.node_cost_ms(graph, number)
        except KeyboardInterrupt:
            self._interrupted = True
        if self._interrupted:
            measured.deadline_s = -math.inf

    def _found(self, result: Result, others: list[Result]) -> Found:
        """Choose states to check: from the searches' trails, and from their ends in blocks."""
        trails = [worth_measuring(result.candidates[0])]
        for other in others:
            here = replay(Visited(self._problem.start), other.path)
            trails.append(worth_measuring(here, max_states=_NUM_OF_OTHERS))
        ends = [trail[0] for trail in trails if trail]
        if not ends and result.expansions:
            ends = [Visited(self._problem.start)]
        trails.append([made for one in ends if (made := self._blocked(one)) is not None])
        proposed: dict[object, Visited] = {}
        for visited in itertools.chain.from_iterable(itertools.zip_longest(*trails)):
            if visited is not None and len(proposed) < _NUM_PROPOSED:
                proposed.setdefault(visited.state.graph, visited)
        measured = self._measured
        return Found(
            result,
            tuple(proposed.values()),
            measured.num_measured if measured else 0,
            measured.num_estimated if measured else 0,
            time.monotonic() - self._began_s,
        )

    def _blocked(self, visited: Visited) -> Visited | None:
        """Return a state in blocks; None if nothing becomes otherwise."""
        here = replay(Visited(self._problem.start_with_block_rules), visited.path)
        made = blocked(here)
        return None if made is here else made


def _changed(start: Any, found: Any) -> list[tuple[Graph, int]]:
    """Return the nodes that differ between two states, each with its graph; the dearest first."""
    here, there = start.node_costs_ms, found.node_costs_ms
    pairs = [(here[one], start.graph, one) for one in here if one not in there]
    pairs += [(there[one], found.graph, one) for one in there if here.get(one) != there[one]]
    return [pair for _, *pair in sorted(pairs, key=lambda one: -one[0])]  # type: ignore[misc]


def _near(start: Any) -> list[tuple[Graph, int]]:
    """Return all nodes of a state: those that rules may change first, the dearest of them first."""
    graph, costs_ms = start.graph, start.node_costs_ms
    near = {number for match in start.matches for number in nodes_of(match)}
    near |= {user for number in near for user in graph.users(number)}
    order = sorted(costs_ms, key=lambda one: (one not in near, -costs_ms[one], one))
    return [(graph, number) for number in order]


def _nothing(method: str, problem: GraphProblem) -> Result:
    """Return the result of a search that has nothing to do."""
    start = problem.start
    return Result(method, start, (), (Visited(start),), start.cost_ms, 0, 0.0, EXHAUSTED, 0)
