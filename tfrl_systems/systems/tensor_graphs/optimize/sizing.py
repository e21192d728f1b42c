"""Sizing: choose the sizes that the model leaves open, and make inputs of these sizes."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Sequence

from environments.errors import UsageError
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.trials import Trials
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.reading import Reading
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.original import levels_of
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem


@dataclasses.dataclass(frozen=True)
class Task:
    """A model that can be run, and all that is needed to optimise it.

    Attributes:
      problem: the graph, the rules and the objective, at the chosen sizes.
      trials: the inputs to compare and measure candidates on.
      reference: what candidates are compared with.
      levels: the backend at the levels that take the model, with less and less optimisation.
      policy, walker: see `Reading`.
      began_s: when everything began, by `time.monotonic`.
      single: the backend on one thread, where it otherwise runs on several; else None.
    """

    request: Optimization
    problem: GraphProblem
    trials: Trials
    reference: Reference
    levels: Sequence[Backend]
    policy: GraphPolicy | None
    began_s: float
    walker: GraphPolicy | None = None
    single: Backend | None = None

    @property
    def below(self) -> Backend | None:
        """The level that a candidate may need for inputs without elements; see `equivalence`.

        --strict does not allow a candidate to need less optimisation than the model.
        """
        return None if self.request.strict or len(self.levels) < 2 else self.levels[1]

    @property
    def is_over(self) -> bool:
        """Whether all the time that everything may take has passed."""
        return time.monotonic() >= self.began_s + self.request.all_seconds

    def share_end_s(self, share: float) -> float:
        """Return when a share of the time that is left will be over, by `time.monotonic`."""
        now_s = time.monotonic()
        return now_s + share * max(0.0, self.began_s + self.request.all_seconds - now_s)


def make_task(request: Optimization, reading: Reading, reporter: Reporter, began_s: float) -> Task:
    """Choose the sizes to optimise at, and make inputs of these sizes.

    Raises:
      UserError: a size, an input, the rules or the objective cannot be used.
      NoInputsError: no sizes or inputs are found with which the model runs.
      UsageError: --freeze does not go with the sizes.
    """
    original = reading.original
    choice = original.choose(dict(request.dimensions), reading.inputs)
    if request.freeze:
        choice = _freeze(reading, choice)
    trials = original.make_trials(choice, reading.inputs, request.freeze)
    if choice.chosen:
        reporter.say(f"sizes: {choice.points[0]}; to change what was chosen: {options_of(choice)}")
    original.compute_ahead(trials)
    problem = GraphProblem.at(
        original,
        request,
        choice,
        request.strict,
        request.contrib,
        trials.measured[0].inputs,
        request.threads,
    )
    return Task(
        request,
        problem,
        trials,
        original.reference,
        original.levels,
        reading.policy,
        began_s,
        reading.walker,
        levels_of(request.objective)[0] if request.threads > 1 else None,
    )


def options_of(choice: Choice) -> str:
    """Return the options that change what was chosen."""
    sizes = choice.points[0].to_json()
    words = (shlex.quote(f"{name}={sizes[name]}") for name in choice.chosen)
    return " ".join(f"--dimension {word}" for word in words)


def _freeze(reading: Reading, choice: Choice) -> Choice:
    """Fix the sizes of a model's graph at those that lead the search; return a choice of these.

    Half and double of them are no longer possible. The model itself stays, to compare with.
    """
    sizes = list(dict.fromkeys(str(trial.sizes) for trial in reading.inputs))
    if len(sizes) > 1:
        raise UsageError(
            f"--freeze: expected inputs of the same sizes, found {' and '.join(sizes)}; give one "
            "file"
        )
    point = choice.points[0]
    reading.original.freeze(point)
    return dataclasses.replace(choice, points=(point,))
