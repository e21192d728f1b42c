"""A complete training run of BC-Max: iterations, checkpoints, curves, and the result."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.policy_files import load_policy_json
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.comparison import Comparison, Evaluation, evaluate
from tfrl_systems.systems.inlining.imitation.loop import (
    CONTEXT_WEIGHTS,
    BcMaxLoop,
    Config,
    Iteration,
)
from tfrl_systems.systems.inlining.imitation.outcomes import DecisionProblem, Policy, decision_specs
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.training.checkpoints import Checkpoint, Workdir
from tfrl_systems.training.summaries import Value, write_curves, write_settings

OnIteration = Callable[[Mapping[str, Any], bool], None]
"""(record of an iteration, whether an earlier run had finished it) -> None."""


def run_bc_max(
    problem: DecisionProblem,
    validation: DecisionProblem,
    holdout: DecisionProblem | None,
    config: Config,
    agent_config: decision_agent.Config,
    workdir: Workdir,
    metadata: Mapping[str, Any],
    on_iteration: OnIteration,
) -> dict[str, Any]:
    """Train from the start, or continue the run that `workdir` holds.

    Finished iterations are not fitted again. Their policies are read from the checkpoints. Their
    explorations come from the problem's own cache, or are made again if that is gone. The outcome
    is that of a run that was never interrupted.

    Args:
      problem: contexts to learn on.
      validation: contexts to choose margins and the best iteration on.
      holdout: contexts on which each policy is measured, for the record only; None for no
        measurement.
      config: settings of the loop.
      agent_config: settings of the agent.
      workdir: the run's directory.
      metadata: fields to add to policy.json; "environment" must be there.
      on_iteration: called with the record of each iteration; see `OnIteration`.

    Returns:
      The contents of result.json.

    Raises:
      UserError: a setting is out of its range, nothing can be learned, or nothing can be written.
    """
    _check(problem, config, agent_config)
    loop = BcMaxLoop(problem, validation, config, agent_config)
    write_settings(workdir.tensorboard, workdir.settings)
    records = []
    for number in range(1, config.iterations + 1):
        checkpoint = workdir.load(number)
        if checkpoint is not None:
            record, learned = checkpoint.record, _load_policy(checkpoint)
            bold = learned.with_margins(record["bold_margin"], record["bold_outside_margin"])
            loop.step((learned, bold))
        else:
            iteration = loop.step()
            assert loop.learned is not None
            evaluation, evaluating_s = _measure(holdout, loop.learned)
            assert loop.chosen is not None
            validated = Evaluation(loop.learned.name, loop.chosen.cautious.comparison)
            record = _record(iteration, validated, evaluation, evaluating_s)
            _write_curves(workdir.tensorboard, record, loop.explored, validated, evaluation)
            workdir.save(number, _saver(loop.agent, {**metadata, "iteration": number}), record)
        records.append(record)
        on_iteration(record, checkpoint is not None)
    chosen = best_iteration(records)
    result = _result(loop, records, chosen, config, metadata, workdir)
    workdir.finish(chosen, result)
    return result


def best_iteration(records: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the iteration whose policy scored best; of equals the first one."""
    return max(records, key=lambda record: (record["score"], -record["number"]))["number"]


def load_policies(workdir: Workdir, iterations: int) -> list[CallSitePolicy]:
    """Return the policies of the first `iterations` iterations, as far as `workdir` keeps them."""
    checkpoints = [workdir.load(number) for number in range(1, iterations + 1)]
    return [_load_policy(checkpoint) for checkpoint in checkpoints if checkpoint is not None]


def _saver(agent: Any, about: Mapping[str, Any]) -> Callable[[pathlib.Path], None]:
    def save(directory: pathlib.Path) -> None:
        save_policy(directory / "policy", agent.policy, about)

    return save


def _load_policy(checkpoint: Checkpoint) -> CallSitePolicy:
    return CallSitePolicy.load(
        checkpoint.directory / "policy", f"learned-{int(checkpoint.directory.name)}"
    )


def _check(problem: DecisionProblem, config: Config, agent_config: decision_agent.Config) -> None:
    """Raise an error for settings that cannot work, before hours are spent on the run."""
    if not config.margins:
        raise UserError("margins: expected one or more numbers, found none; give some")
    if config.context_weights not in CONTEXT_WEIGHTS or config.hedge_eta < 0:
        raise UserError(
            f"context_weights: expected one of {', '.join(CONTEXT_WEIGHTS)} and hedge_eta from 0 "
            f"on, found {config.context_weights!r} and {config.hedge_eta}; correct them"
        )
    for name in config.baselines:
        problem.baseline(name)
    agent_config = dataclasses.replace(agent_config, baseline_feature=problem.baseline_feature)
    decision_agent.make_agent(agent_config, *decision_specs(problem.feature_names))


def _measure(holdout: DecisionProblem | None, learned: Policy) -> tuple[Evaluation | None, float]:
    started_s = time.monotonic()
    if holdout is None:
        return None, 0.0
    evaluation = evaluate(holdout, learned, "held-out")
    return evaluation, time.monotonic() - started_s


def _record(
    iteration: Iteration,
    validated: Evaluation,
    evaluation: Evaluation | None,
    evaluating_s: float,
) -> dict[str, Any]:
    values = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in dataclasses.asdict(iteration).items()
    }
    return {
        **values,
        "policy_saving_percent": iteration.policy_saving_percent,
        "oracle_saving_percent": iteration.oracle_saving_percent,
        "learned": f"learned-{iteration.number}",
        "evaluating_s": evaluating_s,
        "validation": validated.to_json(),
        "holdout": evaluation.to_json() if evaluation is not None else None,
    }


def _write_curves(
    directory: pathlib.Path,
    record: Mapping[str, Any],
    explored: Comparison | None,
    validated: Evaluation,
    evaluation: Evaluation | None,
) -> None:
    """Write the curves that TensorBoard shows of an iteration.

    Each policy's values are at its number, 0 for the default. Iteration i fits policy i and
    explores around policy i - 1. `learned from`, `validation` and `held out` are runs of their own,
    so that TensorBoard draws them in one chart.
    """
    number = record["number"]
    write_curves(directory, number, [(number, _fit_curves(record))])
    if explored is not None:
        values = {"best_known_saving_percent": record["oracle_saving_percent"]}
        rows = [(number - 1, {**explored.curves(), **values})]
        write_curves(directory / "learned from", number, rows)
    write_curves(directory / "validation", number, [(number, validated.comparison.curves())])
    if evaluation is not None:
        write_curves(directory / "held out", number, [(number, evaluation.comparison.curves())])


def _fit_curves(record: Mapping[str, Any]) -> dict[str, Value]:
    return {
        "fit/loss": record["loss"],
        "fit/agreement": record["agreement"],
        "fit/labels": record["rows"],
        "fit/explored_actions": record["flips"],
        "fit/share_of_contexts_cloned": record["cloned"],
        "fit/margin": record["margin"],
        "fit/outside_margin": record["outside_margin"],
        "fit/bold_margin": record["bold_margin"],
        "fit/score": record["score"],
        "seconds/collecting": record["collecting_s"],
        "seconds/training": record["training_s"],
        "seconds/validating": record["validating_s"],
        "seconds/evaluating": record["evaluating_s"],
    }


def _result(
    loop: BcMaxLoop,
    records: Sequence[Mapping[str, Any]],
    chosen: int,
    config: Config,
    metadata: Mapping[str, Any],
    workdir: Workdir,
) -> dict[str, Any]:
    policy = workdir.checkpoint(chosen) / "policy"
    return {
        "environment": metadata["environment"],
        "agent": "bc_max",
        "seed": config.seed,
        "iterations": config.iterations,
        "environment_steps": loop.environment_steps,
        "seconds": {
            "collecting": sum(record["collecting_s"] for record in records),
            # In one process nothing is sent, and nothing waits for slower workers.
            "broadcasting": 0.0,
            "waiting": 0.0,
            "training": sum(record["training_s"] for record in records),
            "validating": sum(record["validating_s"] for record in records),
            "evaluating": sum(record["evaluating_s"] for record in records),
        },
        "experience_sha256": loop.labels().sha256(),
        "policy_sha256": CallSitePolicy.load(policy).fingerprint,
        "evaluation": {
            "chosen_iteration": chosen,
            "validation": records[chosen - 1]["validation"],
            "holdout": records[chosen - 1]["holdout"],
            "iterations": records,
        },
        "settings": dict(workdir.settings),
        "versions": load_policy_json(policy)["versions"],
    }
