"""Which candidates compute what the model does, and what is tried where the likeliest does not."""

from __future__ import annotations

import collections
import pathlib
import time
from collections.abc import Callable, Collection, Sequence

from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.trials import Trial
from environments.tensor_graphs.search import Visited
from environments.tensor_graphs.selection.candidates import Candidate, verify
from environments.tensor_graphs.selection.leaving_out import replay_without
from tfrl_systems.reporting import Reporter


class Checking:
    """Compares candidates with the model; of those that are refused, tries parts.

    Args:
      reference: what candidates are compared with.
      trials: the inputs to compare on.
      directory: where candidates are written.
      on: the backend that runs them.
      below: see `equivalence.check`.
      lossy: names of rules that may lose digits.
      until_fn: returns when to be ready, by `time.monotonic`.
      reporter: told why a candidate is refused.
    """

    def __init__(
        self,
        reference: Reference,
        trials: Sequence[Trial],
        directory: pathlib.Path,
        on: Backend,
        below: Backend | None,
        *,
        lossy: Collection[str],
        until_fn: Callable[[], float],
        reporter: Reporter,
    ) -> None:
        self._reference = reference
        self._trials = trials
        self._directory = directory
        self._on, self._below = on, below
        self._lossy = lossy
        self._until_fn = until_fn
        self._reporter = reporter

    def run(self, proposed: Sequence[Visited]) -> list[Candidate]:
        """Return the proposed states as candidates, and behind them what else was tried."""
        candidates = self._checked(proposed, "proposed")
        candidates += self._checked(self._careful(candidates), "careful")
        return candidates + self._without_a_rule(candidates)

    def _checked(self, proposed: Sequence[Visited], name: str) -> list[Candidate]:
        directory = self._directory / name
        directory.mkdir()
        until_s = self._until_fn()
        candidates = list(
            verify(
                self._reference,
                proposed,
                self._trials,
                directory,
                self._on,
                until_s,
                self._lossy,
                self._below,
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
        until_s = self._until_fn()
        checked: list[Candidate] = []
        for number, group in enumerate(sorted(steps.values(), key=len, reverse=True)):
            if time.monotonic() > until_s:
                break
            visited = replay_without(likeliest.visited, group)
            checked += self._checked([visited], f"without-rule-{number}")
            if not checked[-1].refusal:
                break
        return checked
