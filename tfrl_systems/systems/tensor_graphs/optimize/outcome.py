"""The outcome of an optimisation, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.bound.exact import Bound
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.measuring import Comparison
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.search import Result, Visited
from environments.tensor_graphs.selection.contributions import Contribution, contributions, shares
from environments.tensor_graphs.selection.leaving_out import Account
from environments.tensor_graphs.selection.selection import Measurement, Row, Selection
from tfrl_systems.reporting import format_table, percent
from tfrl_systems.systems.tensor_graphs.optimize.stages import Found
from tfrl_systems.systems.tensor_graphs.problem import num_operators


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of optimising one model.

    Attributes:
      model: the file that was given.
      output: the file that was written.
      objective: name of the objective that was minimised.
      strict: whether rules that may change NaN or infinity, or may lose digits, were left out.
      before: graph of the given model.
      found: what the search found.
      selection: the candidates, and which of them was chosen.
      choice: the sizes that it was optimised at.
      note: what is special about the inputs that it was compared on; "" if nothing is.
      account: what each rule saves, as it was measured; None if nothing was.
      bound: how cheap the graph can become at best; None if that was not asked for.
      seconds: wall time of everything, in seconds.
    """

    model: str
    output: str
    objective: str
    strict: bool
    before: Graph
    found: Found
    selection: Selection
    choice: Choice
    note: str = ""
    account: Account | None = None
    bound: Bound | None = None
    seconds: float = 0.0

    @property
    def result(self) -> Result:
        """The result of the main search."""
        return self.found.result

    @property
    def visited(self) -> Visited | None:
        """The state that was written; None for a copy of the model."""
        return self.selection.chosen.visited if self.selection.chosen else None

    @property
    def after(self) -> Graph:
        """The graph that was written."""
        graph = self.visited.state.graph if self.visited else self.before
        assert isinstance(graph, Graph)
        return graph

    @property
    def estimated_ms(self) -> float:
        """Estimated cost of the graph that was written, in ms."""
        return self.visited.cost_ms if self.visited else self.result.start_cost_ms

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of the written model; None for a copy, or if nothing was measured."""
        return self.selection.measurement if self.visited else None

    @property
    def max_relative_error(self) -> float:
        """Largest relative error of the written model's outputs; 0 if they were not compared."""
        chosen = self.selection.chosen
        return chosen.equivalence.max_relative_error if chosen and chosen.equivalence else 0.0

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """The contribution of each rule; () for a copy."""
        if self.visited is None:
            return ()
        measured = self.account.measured if self.account else ()
        return shares(contributions(self.visited, measured))

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as `tfrl optimize --json` shows it."""
        measured = self.measurement
        return {
            "model": self.model,
            "output": self.output,
            "method": self.result.method,
            "objective": self.objective,
            "strict": self.strict,
            "gain": self.visited is not None,
            "reason": self.selection.reason,
            "sizes": [one.to_json() for one in self.choice.points],
            "sizes_chosen": list(self.choice.chosen),
            "nodes_before": num_operators(self.before),
            "nodes_after": num_operators(self.after),
            "estimated_ms_before": self.result.start_cost_ms,
            "estimated_ms_after": self.estimated_ms,
            "measured_ratio": measured and measured.fully_optimised.ratio.value,
            "measured_ratio_interval": measured and _interval(measured.fully_optimised),
            "same_model_ratio_interval": measured
            and [measured.fully_optimised.same.low, measured.fully_optimised.same.high],
            "best_level": measured and _best_level(measured),
            "measured": [_row(one) for one in measured.rows] if measured else [],
            "compared_on": self.note,
            "max_relative_error": self.max_relative_error,
            "substitutions": [_step(one) for one in self._steps()],
            "rules": [_contribution(one) for one in self.contributions],
            "left_out": [list(rules) for rules in self.account.left_out] if self.account else [],
            "needed": [
                {"xfers": list(one.rules), "reason": one.why}
                for one in (self.account.needed if self.account else ())
            ],
            "refused": [one.refusal for one in self.selection.candidates if one.refusal],
            "expansions": self.result.expansions,
            "stopped": self.result.stopped,
            "bound": self.bound
            and {
                "estimated_ms": self.bound.bound_ms,
                "is_proved": self.bound.is_proved,
                "gap": self.bound.gap(self.result.best.cost_ms),
            },
            "operators_measured": self.found.num_measured,
            "operators_estimated": self.found.num_estimated,
            "search_seconds": self.found.seconds,
            "seconds": self.seconds,
        }

    def to_text(self) -> str:
        """Return the outcome as `tfrl optimize` shows it."""
        lines = [f"{self.model} -> {self.output}", *self._facts()]
        if self.visited is None:
            return "\n".join([*lines, f"no gain available: {self.selection.reason}; copied"])
        header = ["rule", "times", "estimated", "measured"]
        rows = [
            [
                named(one.rules),
                f"{len(one.locations)}",
                percent(
                    self.result.start_cost_ms - one.estimated_saving_ms, self.result.start_cost_ms
                ),
                "-" if one.measured_saving is None else f"{-100 * one.measured_saving:+.2f}%",
            ]
            for one in self.contributions
        ]
        return "\n".join([*lines, "", format_table(header, rows)])

    def _facts(self) -> list[str]:
        found = [("sizes", str(self.choice.points[0]))] if self.choice.points[0].named else []
        if self.choice.chosen:
            found.append(("", f"chosen; to change them: {self.choice.hint}"))
        found += [
            ("search", f"{self.result.method}, {self.result.expansions} expansions, "
             f"{self.result.seconds:.1f} s, {self.result.stopped}"),
            ("operators", f"{num_operators(self.before)} -> {num_operators(self.after)}"),
            ("estimated", f"{self.result.start_cost_ms:.3f} ms -> {self.estimated_ms:.3f} ms "
             f"({percent(self.estimated_ms, self.result.start_cost_ms)})"),
        ]  # fmt: skip
        if self.found.num_estimated:
            found.append(
                (
                    "",
                    f"{self.found.num_estimated} kinds of operators by a formula, since "
                    "they cannot be measured, or --seconds was over",
                )
            )
        if self.bound is not None:
            kind = "at least" if self.bound.is_proved else "not proved:"
            gap = self.bound.gap(self.result.best.cost_ms)
            found.append(("bound", f"{kind} {self.bound.bound_ms:.3f} ms, gap {100 * gap:.1f}%"))
        if (measured := self.measurement) is not None:
            full, best = measured.fully_optimised, measured.at_best_levels
            found.append(("measured", f"{full.ratio} of the model's time"))
            found.append(("", f"{full.same} for two copies of the model"))
            for row in measured.rows[1:]:
                found.append(("", f"{row.comparison.ratio} at {row.sizes}"))
                found.append(("", f"{row.comparison.same} for two copies of the model"))
            if best is not full:
                found.append(
                    ("at best levels", f"{best.ratio} ({measured.candidate_level} against "
                     f"{measured.original_level})")
                )  # fmt: skip
        if self.visited is not None:
            found.append(("largest error", f"{self.max_relative_error:.1e} relative"))
        if self.note:
            found.append(("note", self.note))
        if self.account is not None:
            found += [
                ("left out", f"{named(rules)}: measured slower") for rules in self.account.left_out
            ]
            found += [("kept", f"{named(one.rules)}: {one.why}") for one in self.account.needed]
        return [f"  {name:<15}{value}" for name, value in found]

    def _steps(self) -> list[Visited]:
        return [one for one in self.visited.trail if one.step] if self.visited else []


def named(rules: Sequence[str]) -> str:
    """Name a group of rules by the first and the number of others."""
    more = len(rules) - 1
    return rules[0] + (f" and {more} more" if more else "")


def _row(row: Row) -> dict[str, Any]:
    return {
        "sizes": row.sizes.to_json(),
        "ratio": row.comparison.ratio.value,
        "interval": _interval(row.comparison),
        "same_interval": [row.comparison.same.low, row.comparison.same.high],
    }


def _interval(comparison: Comparison) -> list[float]:
    return [comparison.ratio.low, comparison.ratio.high]


def _best_level(measured: Measurement) -> dict[str, Any]:
    return {
        "of_model": measured.original_level,
        "of_output": measured.candidate_level,
        "measured_ratio": measured.at_best_levels.ratio.value,
        "measured_ratio_interval": _interval(measured.at_best_levels),
    }


def _step(visited: Visited) -> dict[str, Any]:
    assert visited.step is not None and visited.parent is not None
    return {
        "xfer": visited.step.rule,
        "location": list(visited.step.location),
        "estimated_gain_ms": visited.parent.cost_ms - visited.cost_ms,
    }


def _contribution(one: Contribution) -> dict[str, Any]:
    return {
        "xfers": list(one.rules),
        "locations": [list(location) for location in one.locations],
        "estimated_gain_ms": one.estimated_saving_ms,
        "measured_gain": one.measured_saving,
        "measured_margin": None if one.measured_saving is None else one.margin,
    }
