"""Training with BC-Max, for systems that have trajectories to imitate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tfrl_systems.reporting import Reporter, percent
from tfrl_systems.systems.inlining.imitation.outcomes import DecisionProblem
from tfrl_systems.systems.inlining.imitation.run import run_bc_max
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class ImitationTask:
    """What training needs from a system to learn a policy from its trajectories.

    Attributes:
      problem: contexts to learn on.
      validation: contexts to choose the policy on.
      holdout: contexts that each policy is measured on, without learning from them; None if there
        are none.
      about: further entries of policy.json, besides the model, environment and agent.
      tell_failures: reports which contexts were left out; called after each iteration.
    """

    problem: DecisionProblem
    validation: DecisionProblem
    holdout: DecisionProblem | None
    about: Mapping[str, Any]
    tell_failures: Callable[[], None] = lambda: None


def train(
    run: TrainingRun, task: ImitationTask, workdir: Workdir, reporter: Reporter
) -> dict[str, Any]:
    """Train, or go on with the run in `workdir`; return the contents of result.json."""

    def on_iteration(record: Mapping[str, Any], resumed: bool) -> None:
        task.tell_failures()
        reporter.say(_describe(record, resumed))

    config = run.settings["loop"]
    names = {"environment": run.system, "agent": run.agent, "seed": run.seed}
    return run_bc_max(
        task.problem,
        task.validation,
        task.holdout,
        config,
        run.settings["agent"],
        workdir,
        {**task.about, **names, "run": dict(workdir.settings)},
        on_iteration,
    )


def _describe(record: Mapping[str, Any], resumed: bool) -> str:
    default = record["default_cost"]
    parts = [
        f"iteration {record['number']}{' (kept)' if resumed else ''}: {record['policy']} "
        f"{percent(record['policy_cost'], default)}, best known "
        f"{percent(record['oracle_cost'], default)}",
        f"{record['flips']} decisions explored",
    ]
    for part, title in (("validation", "validation"), ("holdout", "held-out")):
        if (evaluation := record[part]) is not None:
            parts.append(
                f"{record['learned']} on {title} modules "
                f"{percent(evaluation['cost'], evaluation['default_cost'])}, "
                f"{evaluation['worse']} of {evaluation['contexts']} worse"
            )
    return "; ".join(parts)
