"""The outcome of an optimisation, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from environments.tensor_graphs.bound.exact import Bound
from environments.tensor_graphs.costs.table import processor_model
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.measuring import Comparison, Ratio
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.search import Result, Visited
from environments.tensor_graphs.selection.candidates import Measurement, Row
from environments.tensor_graphs.selection.contributions import Contribution, contributions, shares
from environments.tensor_graphs.selection.leaving_out import Account
from environments.tensor_graphs.selection.quantization import Attempt
from environments.tensor_graphs.selection.selection import Selection
from tfrl_systems.reporting import format_table, percent
from tfrl_systems.systems.tensor_graphs.optimize.quantizing import Quantized
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.searching import Proposals
from tfrl_systems.systems.tensor_graphs.optimize.task import options_of
from tfrl_systems.systems.tensor_graphs.problem import num_operators


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of optimising one model.

    Attributes:
      before: graph of the given model.
      choice: the sizes that it was optimised at.
      note: what is special about the inputs that it was compared on; "" if nothing is.
      account: what each rule saves, as it was measured; None if nothing was.
      quantized, bound: None if that was not asked for.
      seconds: wall time of everything.
    """

    request: Optimization
    before: Graph
    proposals: Proposals
    selection: Selection
    choice: Choice
    note: str = ""
    account: Account | None = None
    quantized: Quantized | None = None
    bound: Bound | None = None
    seconds: float = 0.0

    @property
    def result(self) -> Result:
        """The result of the main search."""
        return self.proposals.result

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
    def comparison(self) -> Comparison | None:
        """The written model's time over the given one's; None for a copy, or if not measured."""
        if self.quantized is not None and self.quantized.compared is not None:
            return self.quantized.compared
        return self.measurement.fully_optimised if self.measurement else None

    @property
    def max_relative_error(self) -> float:
        """Largest relative error of the written model's outputs; 0 if they were not compared."""
        if (attempt := self._int8) is not None:
            return attempt.judgement.error
        chosen = self.selection.chosen
        return chosen.equivalence.max_relative_error if chosen and chosen.equivalence else 0.0

    @property
    def _int8(self) -> Attempt | None:
        return self.quantized.chosen if self.quantized else None

    @property
    def has_gain(self) -> bool:
        """Whether the written model is faster than the given one."""
        return self.visited is not None or self._int8 is not None

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """The contribution of each rule; () for a copy."""
        if self.visited is None:
            return ()
        measured = self.account.measured if self.account else ()
        return shares(contributions(self.visited, measured))

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as `tfrl optimize --json` shows it."""
        account, bound = self.account, self.bound
        steps = [state for state in self.visited.trail if state.step] if self.visited else []
        return {
            "model": str(self.request.model),
            "output": str(self.request.place),
            "method": self.result.method,
            "objective": self.request.objective,
            "strict": self.request.strict,
            "contrib": self.request.contrib,
            "gain": self.has_gain,
            "reason": "" if self.has_gain else self.selection.reason,
            "quantized": self.quantized and self.quantized.to_json(),
            "sizes": [sizes.to_json() for sizes in self.choice.points],
            "sizes_chosen": list(self.choice.chosen),
            "nodes_before": num_operators(self.before),
            "nodes_after": num_operators(self.after),
            "estimated_ms_before": self.result.start_cost_ms,
            "estimated_ms_after": self.estimated_ms,
            **self._measured_to_json(),
            "compared_on": self.note,
            "max_relative_error": self.max_relative_error,
            "substitutions": [_step(state) for state in steps],
            "rules": [_contribution(contribution) for contribution in self.contributions],
            "left_out": [list(rules) for rules in account.left_out] if account else [],
            "needed": [
                {"xfers": list(needed.rules), "reason": needed.why}
                for needed in (account.needed if account else ())
            ],
            "refused": [
                candidate.refusal for candidate in self.selection.candidates if candidate.refusal
            ],
            "expansions": self.result.expansions,
            "stopped": self.result.stopped,
            "bound": bound
            and {
                "estimated_ms": bound.bound_ms,
                "is_proved": bound.is_proved,
                "gap": bound.gap(self.result.best.cost_ms),
            },
            "operators_measured": self.proposals.num_measured,
            "operators_estimated": self.proposals.num_estimated,
            "search_seconds": self.proposals.seconds,
            "seconds": self.seconds,
        }

    def _measured_to_json(self) -> dict[str, Any]:
        measured, full = self.measurement, self.comparison
        return {
            "measured_ratio": full and full.ratio.value,
            "measured_ratio_interval": full and _interval(full.ratio),
            "same_model_ratio_interval": full and _interval(full.same),
            "best_level": measured and _best_level(measured),
            "threads": self.request.threads,
            "processor": processor_model(),
            "measured": [self._row(row) for row in measured.rows] if measured else [],
        }

    def _row(self, row: Row) -> dict[str, Any]:
        return {
            "sizes": row.sizes.to_json(),
            "threads": 1 if row.is_single else self.request.threads,
            "ratio": row.comparison.ratio.value,
            "interval": _interval(row.comparison.ratio),
            "same_interval": _interval(row.comparison.same),
        }

    def to_text(self) -> str:
        """Return the outcome as `tfrl optimize` shows it."""
        facts = [*self._facts_of_search(), *self._facts_of_measuring()]
        facts += self._facts_of_quantizing()
        lines = [
            f"{self.request.model} -> {self.request.place}",
            *(f"  {name:<15}{text}" for name, text in facts),
        ]
        if self.visited is None and self.has_gain:
            return "\n".join(lines)
        if self.visited is None:
            return "\n".join([*lines, f"no gain available: {self.selection.reason}; copied"])
        start_ms = self.result.start_cost_ms
        rows = [
            [
                _named(rule.rules),
                f"{len(rule.locations)}",
                percent(start_ms - rule.estimated_saving_ms, start_ms),
                "-" if rule.measured_saving is None else f"{-100 * rule.measured_saving:+.2f}%",
            ]
            for rule in self.contributions
        ]
        return "\n".join(
            [*lines, "", format_table(["rule", "times", "estimated", "measured"], rows)]
        )

    def _facts_of_search(self) -> Iterator[tuple[str, str]]:
        result, before_ms, after_ms = self.result, self.result.start_cost_ms, self.estimated_ms
        if self.choice.points[0].named:
            yield "sizes", str(self.choice.points[0])
        if self.choice.chosen:
            yield "", f"chosen; to change them: {options_of(self.choice)}"
        yield (
            "search",
            f"{result.method}, {result.expansions} expansions, {result.seconds:.1f} s, "
            f"{result.stopped}",
        )
        yield "operators", f"{num_operators(self.before)} -> {num_operators(self.after)}"
        change = percent(after_ms, before_ms)
        yield "estimated", f"{before_ms:.3f} ms -> {after_ms:.3f} ms ({change})"
        if self.proposals.num_estimated:
            yield (
                "",
                f"{self.proposals.num_estimated} kinds of operators by a formula, since "
                "they cannot be measured, or --seconds was over",
            )
        if self.bound is not None:
            kind = "at least" if self.bound.is_proved else "not proved:"
            gap = self.bound.gap(result.best.cost_ms)
            yield "bound", f"{kind} {self.bound.bound_ms:.3f} ms, gap {100 * gap:.1f}%"

    def _facts_of_quantizing(self) -> Iterator[tuple[str, str]]:
        if self.quantized is None:
            return
        for attempt in self.quantized.plain:
            name = f"{attempt.kind}, all {len(attempt.nodes)} nodes"
            yield "int8", f"{name}: {_said_of(attempt)}"
        if (chosen := self._int8) is not None and self.quantized.compared is not None:
            name = f"{chosen.kind}, {len(chosen.nodes)} nodes"
            yield "quantised", f"{name}: {_said_of(chosen)}"
            yield "", f"{self.quantized.compared.ratio} of the model's time"
        else:
            yield "not quantised", self.quantized.reason

    def _facts_of_measuring(self) -> Iterator[tuple[str, str]]:
        threads = self.request.threads
        yield "processor", f"{processor_model()}, {threads} thread{'s' * (threads > 1)}"
        if (measured := self.measurement) is not None:
            full, best = measured.fully_optimised, measured.at_best_levels
            # What is written may be made of this one.
            yield "float model" if self._int8 else "measured", f"{full.ratio} of the model's time"
            yield "", f"{full.same} for two copies of the model"
            for row in measured.rows[1:]:
                yield "", f"{row.comparison.ratio} at {row.where}"
                yield "", f"{row.comparison.same} for two copies of the model"
            if best is not full:
                levels = f"{measured.candidate_level} against {measured.original_level}"
                yield "at best levels", f"{best.ratio} ({levels})"
        if self.visited is not None and not self._int8:
            yield "largest error", f"{self.max_relative_error:.1e} relative"
        if self.note:
            yield "note", self.note
        if self.account is not None:
            for rules in self.account.left_out:
                yield "left out", f"{_named(rules)}: measured slower"
            for needed in self.account.needed:
                yield "kept", f"{_named(needed.rules)}: {needed.why}"


def _said_of(attempt: Attempt) -> str:
    judgement, compared = attempt.judgement, attempt.over_float
    text = (
        f"error {judgement.error:.1e}, largest elements agree in {100 * judgement.agreement:.1f}%"
    )
    return text + (f", {compared.ratio} of the float model's time" if compared else "")


def _named(rules: Sequence[str]) -> str:
    """Name a group of rules by the first and the number of others."""
    more = len(rules) - 1
    return rules[0] + (f" and {more} more" if more else "")


def _interval(ratio: Ratio) -> list[float]:
    return [ratio.low, ratio.high]


def _best_level(measured: Measurement) -> dict[str, Any]:
    return {
        "of_model": measured.original_level,
        "of_output": measured.candidate_level,
        "measured_ratio": measured.at_best_levels.ratio.value,
        "measured_ratio_interval": _interval(measured.at_best_levels.ratio),
    }


def _step(visited: Visited) -> dict[str, Any]:
    assert visited.step is not None and visited.parent is not None
    return {
        "xfer": visited.step.rule,
        "location": list(visited.step.location),
        "estimated_gain_ms": visited.parent.cost_ms - visited.cost_ms,
    }


def _contribution(contribution: Contribution) -> dict[str, Any]:
    return {
        "xfers": list(contribution.rules),
        "locations": [list(location) for location in contribution.locations],
        "estimated_gain_ms": contribution.estimated_saving_ms,
        "measured_gain": contribution.measured_saving,
        "measured_margin": None if contribution.measured_saving is None else contribution.margin,
    }
