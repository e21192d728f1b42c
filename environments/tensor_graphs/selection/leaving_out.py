"""Leave out the steps of a path that measured slower, unless other steps need them.

A search believes its estimate, so it may take steps that cost time. Each round leaves out the group
of steps that measured slowest, makes the graph of the others again, checks it, and measures it
against the graph with all steps. It goes on from the graph that is not slower. A group without
which the graph is slower is kept: a later step needs it, or it was measured at a bad moment.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Collection
from typing import NamedTuple

from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.measuring import FEW_PAIRS, Bench, Comparison
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.selection.candidates import Candidate, verify
from environments.tensor_graphs.selection.contributions import (
    Contribution,
    contributions,
    segments_of,
)
from environments.tensor_graphs.selection.selection import Selection, Selector

_PAIRS = 2 * FEW_PAIRS


class Needed(NamedTuple):
    """Rules that measured slower, and what was found without them: the graph is slower still."""

    rules: tuple[str, ...]
    why: str


@dataclasses.dataclass(frozen=True)
class Account:
    """A candidate without what measured slower, and what its rules save.

    Attributes:
      measured: for each of its segments, the graph at its end against the original; empty where
        there was no time for all of them.
      needed: groups that measured slower and were kept.
      left_out: groups that were left out.
    """

    candidate: Candidate
    measured: tuple[Comparison, ...]
    needed: tuple[Needed, ...] = ()
    left_out: tuple[tuple[str, ...], ...] = ()


class LeavingOut:
    """Leaves out what measured slower from a candidate for one original model.

    The selector measures at length, and says what is measured, on what, and until when.
    """

    def __init__(
        self, selector: Selector, directory: pathlib.Path, below: Backend | None = None
    ) -> None:
        self._selector, self._directory, self._below = selector, directory, below

    def run(self, selection: Selection) -> tuple[Selection, Account]:
        """Leave out groups until none measures slower, or the time is over.

        What is left is measured at all sizes, as long as the chosen candidate.

        Returns:
          The selection of what is left, if that is right and no slower; else the given one. And the
          account of the candidate in it.
        """
        chosen, before = selection.chosen, selection.measurement
        assert chosen is not None and before is not None
        first = Account(chosen, self._measured(chosen.visited))
        account = self._rounds(first) if first.measured else first
        if not account.left_out:
            return selection, account
        checked, measurement = self._selector.measure(account.candidate)
        now, then = measurement.fully_optimised, before.fully_optimised
        is_no_slower = now.ratio.value <= then.ratio.value + max(now.margin, then.margin)
        if not checked.refusal and measurement.is_gain and is_no_slower:
            selection = dataclasses.replace(selection, chosen=checked, measurement=measurement)
            return selection, dataclasses.replace(account, candidate=checked)
        slower = measurement.slower
        why = checked.refusal or (
            f"without it the result takes {now.ratio} of the model's time"
            + (f", and {slower.comparison.ratio} at {slower.sizes}" if slower else "")
        )
        needed = (*account.needed, *(Needed(rules, why) for rules in account.left_out))
        return selection, dataclasses.replace(first, needed=needed)

    def _rounds(self, account: Account) -> Account:
        # What is left is measured once more, for half of the time.
        end_s = time.monotonic() + 0.5 * (self._selector.until_s - time.monotonic())
        seen: set[frozenset[str]] = set()
        while time.monotonic() < end_s:
            groups = contributions(account.candidate.visited, account.measured)
            slower = [
                group for group in groups if group.is_slower and frozenset(group.rules) not in seen
            ]
            if not slower:
                break
            worst = min(slower, key=lambda group: group.measured_saving or 0.0)
            seen.add(frozenset(worst.rules))
            account = self._without(account, worst)
        return account

    def _measured(self, visited: Visited) -> tuple[Comparison, ...]:
        """Measure the graph at the end of each segment; return nothing if that takes too long."""
        selector, segments = self._selector, segments_of(visited)
        selector.on_progress("measuring what each rule saves")
        comparisons: list[Comparison] = []
        began_s = time.monotonic()
        for number, segment in enumerate(segments):
            now_s = time.monotonic()
            # The others will take about as long as those before.
            others_s = (len(segments) - number) * (now_s - began_s) / max(number, 1)
            if now_s + others_s > selector.until_s:
                return ()
            path = self._directory / f"segment-{number}.onnx"
            save(segment[-1].state.graph, path)
            comparisons.append(selector.compare_shortly(path, selector.until_s))
            path.unlink()
        return tuple(comparisons)

    def _without(self, account: Account, group: Contribution) -> Account:
        """Return the account without a group, or with the reason why it is needed."""
        selector, on = self._selector, self._selector.levels[0]
        selector.on_progress(f"measuring without {group.rules[0]}")
        visited = replay_without(account.candidate.visited, group.states)
        directory = pathlib.Path(tempfile.mkdtemp(prefix="without-", dir=self._directory))
        trials = selector.trials
        (candidate,) = verify(
            selector.reference, [visited], trials.compared, directory, on, below=self._below
        )
        if candidate.refusal:
            return account
        bench = Bench(account.candidate.path, trials.measured[0].inputs, on)
        comparison = bench.compare(
            candidate.path, seconds=selector.short_s, pairs=_PAIRS, until_s=selector.until_s
        )
        if comparison.is_slower:
            needed = Needed(
                group.rules, f"without it the result takes {comparison.ratio} of its time"
            )
            return dataclasses.replace(account, needed=(*account.needed, needed))
        left_out = (*account.left_out, group.rules)
        return Account(candidate, self._measured(visited), account.needed, left_out)


def replay_without(visited: Visited, left_out: Collection[Visited]) -> Visited:
    """Take the steps of a path again, without some of them and those that need these.

    The nodes that a step makes have other numbers in another graph. So the numbers of the path's
    nodes are translated, step by step.
    """
    start, *steps = visited.trail
    state = start
    numbers: dict[int, int] = {}
    skipped = {id(skipped_state) for skipped_state in left_out}
    for step in steps:
        match, change = step.match, step.state.change
        assert match is not None and change is not None
        again = None if id(step) in skipped else _match_again(state, match, numbers)
        if again is None:
            numbers.update(_undone(match, change, numbers))
            continue
        state = Visited(state.state.apply(again), state, again)
        new_change = state.state.change
        assert new_change is not None
        if len(new_change.added) == len(change.added):
            numbers.update(zip(change.added, new_change.added, strict=True))
    return state


def _match_again(state: Visited, match: Match, numbers: dict[int, int]) -> Match | None:
    roots = len(match.replaced)
    wanted = (
        tuple(numbers.get(root, root) for root in match.location[:roots]) + match.location[roots:]
    )
    matches = (
        candidate
        for candidate in state.state.matches
        if candidate.rule == match.rule and candidate.location == wanted
    )
    return next(matches, None)


def _undone(match: Match, change: Change, numbers: dict[int, int]) -> dict[int, int]:
    """Map the nodes that a step made to those that are there if the step is left out."""
    plan = match.plan
    if len(change.added) != len(plan.steps):
        return {}
    numbers_left = {}
    for place, replaced in zip(plan.results, match.replaced, strict=True):
        if place.node >= plan.num_variables:
            number = change.added[place.node - plan.num_variables]
            numbers_left[number] = numbers.get(replaced.node, replaced.node)
    return numbers_left
