"""Judging: which candidates compute what the model does, and which of these is faster.

Where the likeliest one is refused, parts of it are tried.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
import time
from collections.abc import Sequence

from environments.tensor_graphs.search import OUT_OF_TIME, Visited
from environments.tensor_graphs.selection.candidates import Candidate, verify
from environments.tensor_graphs.selection.leaving_out import Account, LeavingOut, replay_without
from environments.tensor_graphs.selection.selection import (
    NO_TIME,
    Selection,
    Selector,
    expected_ratio,
    first_right,
)
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.searching import Proposals, Tell
from tfrl_systems.systems.tensor_graphs.optimize.task import Task

# Share of the time that is left, for comparing each group of candidates.
_CHECKING = 0.3
# Share of the time that is left, for choosing a candidate; but a busy machine, which has used up
# the time by then, gets so many times a final measurement.
_CHOOSING, _GRANTED = 0.85, 2.0
# Share of the time that is left, for the first, short measurement of a candidate during the search.
_EARLY = 0.3


def why_not(task: Task, proposals: Proposals) -> str:
    """Return why no proposed state can be compared with the model; "" if it can."""
    result, unseen = proposals.result, task.trials.unseen
    if not proposals.states and not result.expansions:
        if result.stopped == OUT_OF_TIME:
            return "there was no time to search; give more --seconds"
        return f"none of the rules applies ({result.stopped})"
    if unseen:
        names = ", ".join(map(repr, unseen))
        return (
            f"output {names} has no finite number on any inputs that were tried, so no change "
            "could be seen; give inputs with --inputs FILE.npz"
        )
    return ""


class Judge:
    """Checks and measures candidates: shortly while the search goes on, and in the end at length.

    They are written to the directory.
    """

    def __init__(self, task: Task, directory: pathlib.Path, reporter: Reporter) -> None:
        self._task, self._directory, self._reporter = task, directory, reporter
        rules = (*task.problem.rules, *task.problem.block_rules)
        self._lossy = frozenset(rule.name for rule in rules if rule.may_lose_digits)
        self._early: list[Candidate] = []
        request = task.request
        self._selector = Selector(
            *(request.model, task.reference, task.trials, task.levels, request.final_seconds),
            single=task.single,
            optional=task.problem.choice.optional,
        )

    def why_not(self) -> str:
        """Return why nothing can be measured in the time that is left; "" where it can."""
        task = self._task
        self._selector.until_s = self._until_s(1.0)
        if not task.request.measure or task.trials.unseen or self._selector.affordable(1.0):
            return ""
        run_ms = 1e3 * self._selector.run_s
        return f"{NO_TIME}, since one run takes {run_ms:.0f} ms; give more --seconds"

    def look_at(self, visited: Visited) -> float:
        """Check and measure a state shortly, so that this is done however long the search takes.

        Returns:
          The share of the model's time that it is expected to take; infinite where it is wrong.
        """
        seen = {candidate.visited.state.graph for candidate in self._early}
        if self._task.trials.unseen or visited.state.graph in seen:
            return 1.0
        (candidate,) = self._check([visited], f"early-{len(self._early)}")
        self._selector.until_s = self._task.share_end_s(1.0)
        if not candidate.refusal and self._selector.affordable(_EARLY):
            candidate = self._selector.screened(candidate, self._task.share_end_s(_EARLY))
        self._early.append(candidate)
        return math.inf if candidate.refusal else expected_ratio(candidate)

    def select(self, proposed: Sequence[Visited]) -> Selection:
        """Choose the fastest state that is right; without measuring, the first that is right.

        The likeliest state comes first.
        """
        with self._reporter.status() as tell:
            tell("comparing the outputs of candidates")
            candidates = self._check_once(proposed)
            candidates += self._check(self._careful(candidates), "careful")
            candidates += self._check_without_a_rule(candidates)
            return self._select(candidates, tell)

    def leave_out(self, selection: Selection) -> tuple[Selection, Account | None]:
        """Leave out what measured slower; measure what each of the other rules saves."""
        if selection.chosen is None or not self._task.request.measure:
            return selection, None
        self._selector.until_s = self._task.share_end_s(1.0)
        with self._reporter.status() as self._selector.on_progress:
            return LeavingOut(self._selector, self._directory, self._task.below).run(selection)

    def _check_once(self, proposed: Sequence[Visited]) -> list[Candidate]:
        """Compare those states with the model that were not looked at; return all candidates."""
        by_graph = {candidate.visited.state.graph: candidate for candidate in self._early}
        states = [state for state in proposed if state.state.graph not in by_graph]
        if self._task.is_over and any(not candidate.refusal for candidate in self._early):
            states = []
        for candidate in self._check(states, "proposed"):
            by_graph[candidate.visited.state.graph] = candidate
        # Costs on the trail of an early one are by formula.
        return [
            dataclasses.replace(by_graph[state.state.graph], visited=state)
            for state in proposed
            if state.state.graph in by_graph
        ]

    def _check(self, proposed: Sequence[Visited], name: str) -> list[Candidate]:
        """Compare states with the model, and write them to a new directory of that name.

        Those that differ have a refusal.
        """
        directory, task = self._directory / name, self._task
        directory.mkdir()
        candidates = list(
            verify(
                task.reference,
                proposed,
                task.trials.compared,
                directory,
                task.levels[0],
                task.share_end_s(_CHECKING),
                self._lossy,
                task.below,
            )
        )
        for candidate in candidates:
            if candidate.refusal:
                self._reporter.say(f"refused: {candidate.refusal}")
        return candidates

    def _careful(self, candidates: Sequence[Candidate]) -> list[Visited]:
        """Return refused candidates without the steps that may lose digits."""
        graphs = {candidate.visited.state.graph for candidate in candidates}
        careful = []
        for candidate in candidates:
            steps = [
                state
                for state in candidate.visited.trail
                if state.step is not None and state.step.rule in self._lossy
            ]
            if candidate.refusal and steps:
                visited = replay_without(candidate.visited, steps)
                if len(visited.trail) > 1 and visited.state.graph not in graphs:
                    graphs.add(visited.state.graph)
                    careful.append(visited)
        return careful

    def _check_without_a_rule(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Try the likeliest candidate without one of its rules, if its outputs differ too much.

        Any rule that makes new weights rounds them, which counts where numbers have few digits.
        """
        likeliest = next(iter(candidates), None)
        if likeliest is None or not likeliest.refusal or likeliest.equivalence is None:
            return []
        steps = collections.defaultdict(list)
        for state in likeliest.visited.trail:
            if state.step is not None:
                steps[state.step.rule].append(state)
        until_s = self._task.share_end_s(_CHECKING)
        checked: list[Candidate] = []
        for number, group in enumerate(sorted(steps.values(), key=len, reverse=True)):
            if time.monotonic() > until_s:
                break
            visited = replay_without(likeliest.visited, group)
            checked += self._check([visited], f"without-rule-{number}")
            if not checked[-1].refusal:
                break
        return checked

    def _select(self, candidates: Sequence[Candidate], tell: Tell) -> Selection:
        task = self._task
        if not task.request.measure:
            return first_right(task.reference, candidates, task.trials.others, task.levels[0])
        self._selector.until_s = self._until_s(_CHOOSING)
        self._selector.on_progress = tell
        selection = self._selector.select(candidates)
        if NO_TIME in selection.reason:
            reason = f"{selection.reason}; give more --seconds"
            return dataclasses.replace(selection, reason=reason)
        return selection

    def _until_s(self, share: float) -> float:
        """Return the end of a share of the time that is left, or of what is granted in any case."""
        granted_s = time.monotonic() + _GRANTED * self._task.request.final_seconds
        return max(self._task.share_end_s(share), granted_s)


def limits_of(selection: Selection) -> list[str]:
    """Return what the chosen candidate does not do as the model does, or may not, for people."""
    chosen, limits = selection.chosen, []
    if chosen is not None and chosen.equivalence is not None and chosen.equivalence.is_limited:
        limits.append(
            "at a size of 0 onnxruntime runs it only without its layout optimisation "
            "(ORT_ENABLE_EXTENDED); --strict leaves such changes out"
        )
    if chosen is not None and selection.measurement and selection.measurement.unmeasured:
        sizes = "; ".join(map(str, selection.measurement.unmeasured))
        limits.append(f"compared, but for want of time not measured at {sizes}: more --seconds")
    return limits
