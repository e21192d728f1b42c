"""What an optimisation came to, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.accounting import Share, shares
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.measuring import Comparison
from environments.tensor_graphs.search import Result, Visited
from environments.tensor_graphs.search.exact import Bound
from environments.tensor_graphs.selecting import Measured, Selection
from tfrl_systems.cli.console import format_table, percent
from tfrl_systems.cli.tensor_graphs.problem import num_operators


@dataclasses.dataclass(frozen=True)
class Outcome:
    """All about one optimisation.

    Attributes:
      model: the file that was given.
      output: the file that was written.
      objective: what was to become less.
      before: graph of the model.
      result: what the search found.
      selection: what became of it.
      ratios: as `accounting.measure` returns them.
      bound: how good any graph can be, where that was asked for.
      seconds: wall time of everything.
    """

    model: str
    output: str
    objective: str
    before: Graph
    result: Result
    selection: Selection
    ratios: Sequence[float]
    bound: Bound | None
    seconds: float

    @property
    def visited(self) -> Visited | None:
        """What was written; None for a copy of the model."""
        return self.selection.chosen.visited if self.selection.chosen else None

    @property
    def after(self) -> Graph:
        """The graph that was written."""
        graph = self.visited.state.graph if self.visited else self.before
        assert isinstance(graph, Graph)
        return graph

    @property
    def estimated_ms(self) -> float:
        """Of the graph that was written."""
        return self.visited.cost_ms if self.visited else self.result.start_cost_ms

    @property
    def measured(self) -> Measured | None:
        """Of the graph that was written."""
        return self.selection.measured if self.visited else None

    @property
    def max_relative_error(self) -> float:
        """Of the model that was written."""
        chosen = self.selection.chosen
        return chosen.equivalence.max_relative_error if chosen and chosen.equivalence else 0.0

    @property
    def shares(self) -> tuple[Share, ...]:
        """What each rule contributed."""
        return shares(self.visited, self.ratios) if self.visited else ()

    def to_json(self) -> dict[str, Any]:
        """As `tfrl optimize --json` shows it."""
        measured = self.measured
        return {
            "model": self.model,
            "output": self.output,
            "method": self.result.method,
            "objective": self.objective,
            "gain": self.visited is not None,
            "reason": self.selection.reason,
            "nodes_before": num_operators(self.before),
            "nodes_after": num_operators(self.after),
            "estimated_ms_before": self.result.start_cost_ms,
            "estimated_ms_after": self.estimated_ms,
            "measured_ratio": measured and measured.full.ratio.value,
            "measured_ratio_interval": measured and _interval(measured.full),
            "same_model_ratio_interval": measured
            and [measured.full.same.low, measured.full.same.high],
            "best_level": measured and _best_level(measured),
            "max_relative_error": self.max_relative_error,
            "substitutions": [_step(one) for one in self._steps()],
            "rules": [_share(one) for one in self.shares],
            "refused": [one.refused for one in self.selection.candidates if one.refused],
            "expansions": self.result.expansions,
            "stopped": self.result.stopped,
            "bound": self.bound
            and {
                "estimated_ms": self.bound.bound_ms,
                "is_proved": self.bound.is_proved,
                "gap": self.bound.gap(self.result.best.cost_ms),
            },
            "seconds": self.seconds,
        }

    def to_text(self) -> str:
        """As `tfrl optimize` shows it."""
        lines = [f"{self.model} -> {self.output}", *self._facts()]
        if self.visited is None:
            return "\n".join([*lines, f"no gain available: {self.selection.reason}; copied"])
        header = ["rule", "times", "estimated", "measured"]
        rows = [
            [
                named(one),
                f"{len(one.locations)}",
                percent(self.result.start_cost_ms - one.estimated_ms, self.result.start_cost_ms),
                "-" if one.measured is None else f"{-100 * one.measured:+.2f}%",
            ]
            for one in self.shares
        ]
        return "\n".join([*lines, "", format_table(header, rows)])

    def _facts(self) -> list[str]:
        found = [
            ("search", f"{self.result.method}, {self.result.expansions} expansions, "
             f"{self.result.seconds:.1f} s, {self.result.stopped}"),
            ("operators", f"{num_operators(self.before)} -> {num_operators(self.after)}"),
            ("estimated", f"{self.result.start_cost_ms:.3f} ms -> {self.estimated_ms:.3f} ms "
             f"({percent(self.estimated_ms, self.result.start_cost_ms)})"),
        ]  # fmt: skip
        if self.bound is not None:
            kind = "at least" if self.bound.is_proved else "not proved:"
            gap = self.bound.gap(self.result.best.cost_ms)
            found.append(("bound", f"{kind} {self.bound.bound_ms:.3f} ms, gap {100 * gap:.1f}%"))
        if self.measured is not None:
            full, best = self.measured.full, self.measured.best
            found.append(("measured", f"{full.ratio} of the model's time"))
            found.append(("", f"{full.same} for two copies of the model"))
            if best is not full:
                found.append(
                    ("at best levels", f"{best.ratio} ({self.measured.own_level} against "
                     f"{self.measured.level})")
                )  # fmt: skip
        if self.visited is not None:
            found.append(("largest error", f"{self.max_relative_error:.1e} relative"))
        return [f"  {name:<15}{value}" for name, value in found]

    def _steps(self) -> list[Visited]:
        return [one for one in self.visited.trail if one.step] if self.visited else []


def named(share: Share) -> str:
    """Its rule, and how many others it was taken in turns with."""
    more = len(share.xfers) - 1
    return share.xfers[0] + (f" and {more} more" if more else "")


def _interval(comparison: Comparison) -> list[float]:
    return [comparison.ratio.low, comparison.ratio.high]


def _best_level(measured: Measured) -> dict[str, Any]:
    return {
        "of_model": measured.level,
        "of_output": measured.own_level,
        "measured_ratio": measured.best.ratio.value,
        "measured_ratio_interval": _interval(measured.best),
    }


def _step(visited: Visited) -> dict[str, Any]:
    assert visited.step is not None and visited.parent is not None
    return {
        "xfer": visited.step.xfer,
        "location": list(visited.step.location),
        "estimated_gain_ms": visited.parent.cost_ms - visited.cost_ms,
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "xfers": list(share.xfers),
        "locations": [list(one) for one in share.locations],
        "estimated_gain_ms": share.estimated_ms,
        "measured_gain": share.measured,
    }
