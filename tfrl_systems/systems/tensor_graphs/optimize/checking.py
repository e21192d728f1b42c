"""Checking: which candidates compute what the model does.

Where the likeliest is refused, parts of it are tried.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import time
from collections.abc import Sequence

from environments.tensor_graphs.search import OUT_OF_TIME, Visited
from environments.tensor_graphs.selection.candidates import Candidate, verify
from environments.tensor_graphs.selection.leaving_out import replay_without
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.searching import Proposals
from tfrl_systems.systems.tensor_graphs.optimize.sizing import Task

# Share of the time that is left, for each group of candidates.
_CHECKING = 0.3


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


class Checker:
    """Compares states with the model, as files in a directory; of those refused it tries parts."""

    def __init__(self, task: Task, directory: pathlib.Path, reporter: Reporter) -> None:
        self._task = task
        self._directory = directory
        self._reporter = reporter
        rules = (*task.problem.rules, *task.problem.block_rules)
        self._lossy = frozenset(rule.name for rule in rules if rule.may_lose_digits)

    def run(self, proposed: Sequence[Visited], early: Sequence[Candidate] = ()) -> list[Candidate]:
        """Return the proposed states as candidates, followed by what else was tried.

        The likeliest state comes first. `early` candidates are not compared again. Those that
        differ from the model have a refusal.
        """
        by_graph = {candidate.visited.state.graph: candidate for candidate in early}
        states = [state for state in proposed if state.state.graph not in by_graph]
        if self._task.is_over and any(not candidate.refusal for candidate in early):
            states = []
        for candidate in self.checked(states, "proposed"):
            by_graph[candidate.visited.state.graph] = candidate
        # Costs on the trail of an early one are by formula.
        candidates = [
            dataclasses.replace(by_graph[state.state.graph], visited=state)
            for state in proposed
            if state.state.graph in by_graph
        ]
        candidates += self.checked(self._careful(candidates), "careful")
        return candidates + self._without_a_rule(candidates)

    def checked(self, proposed: Sequence[Visited], name: str) -> list[Candidate]:
        """Compare states with the model, and write them to a new directory of that name."""
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

    def _without_a_rule(self, candidates: Sequence[Candidate]) -> list[Candidate]:
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
            checked += self.checked([visited], f"without-rule-{number}")
            if not checked[-1].refusal:
                break
        return checked
