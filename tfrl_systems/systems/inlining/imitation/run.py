"""A complete training run of BC-Max: iterations, checkpoints, curves, and the result."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_agents.policies import greedy_policy

from environments.errors import UserError
from tfrl_systems.agents import bc_max
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.policy_files import load_policy_json
from tfrl_systems.reporting import percent
from tfrl_systems.systems.inlining.imitation import cloning
from tfrl_systems.systems.inlining.imitation.comparison import evaluate
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem
from tfrl_systems.systems.inlining.imitation.loop import AROUND, CONTEXT_WEIGHTS, BcMaxLoop, Config
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.curves import write_curves, write_settings

OnIteration = Callable[[Mapping[str, Any], bool], None]
"""(record of an iteration, whether an earlier run had finished it) -> None."""


def run_bc_max(
    problem: InliningProblem,
    validation: InliningProblem,
    holdout: InliningProblem | None,
    config: Config,
    cloning_config: cloning.Config,
    workdir: Workdir,
    about: Mapping[str, Any],
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
      cloning_config: settings of the policy.
      workdir: the run's directory.
      about: fields to add to policy.json; "environment" must be there.
      on_iteration: called with the record of each iteration; see `OnIteration`.

    Returns:
      The contents of result.json.

    Raises:
      UserError: a setting is out of its range, nothing can be learned, or nothing can be written.
    """
    _check(problem, config, cloning_config)
    loop = BcMaxLoop(problem, validation, config, cloning_config)
    write_settings(workdir.tensorboard, workdir.settings)
    records = []
    for number in range(1, config.iterations + 1):
        checkpoint = workdir.load(number)
        record = loop.collect()
        if checkpoint is None:
            record |= loop.fit()
            _measure(loop, holdout, record, workdir.tensorboard)
            workdir.save(number, _saver(loop, {**about, "iteration": number}), record)
        else:
            record = checkpoint.record
            learned = CallSitePolicy.load(checkpoint.directory / "policy", f"learned-{number}")
            margins = record["bold_margin"], record["bold_outside_margin"]
            loop.adopt(learned, learned.with_margins(*margins))
        records.append(record)
        on_iteration(record, checkpoint is not None)
    # Of equally good policies the first one.
    chosen = max(records, key=lambda record: record["score"])["number"]
    result = _result(loop, records, chosen, config, about["environment"], workdir)
    workdir.finish(chosen, result)
    return result


def describe(record: Mapping[str, Any], resumed: bool) -> str:
    """Return one line about an iteration, for people to read."""
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


def _check(problem: InliningProblem, config: Config, cloning_config: cloning.Config) -> None:
    """Raise an error for settings that cannot work, before hours are spent on the run."""
    choices = {
        "context_weights": CONTEXT_WEIGHTS,
        "bucketed_by": bc_max.BUCKETED_BY,
        "around": AROUND,
    }
    for name, allowed in choices.items():
        if (value := getattr(config, name)) not in allowed:
            raise UserError(
                f"{name}: expected one of {', '.join(allowed)}, found {value!r}; correct it"
            )
    if config.hedge_eta < 0 or not 0 <= config.flip_share <= 1:
        raise UserError(
            "bc_max: expected hedge_eta from 0 on and flip_share from 0 to 1, found "
            f"{config.hedge_eta} and {config.flip_share}; correct them"
        )
    for name in config.baselines:
        problem.baseline(name)
    cloning_config = dataclasses.replace(cloning_config, baseline_feature=problem.baseline_feature)
    cloning.check(cloning_config, problem.feature_names)


def _saver(loop: BcMaxLoop, about: Mapping[str, Any]) -> Callable[[pathlib.Path], None]:
    def save(directory: pathlib.Path) -> None:
        assert loop.policy is not None
        save_policy(directory / "policy", greedy_policy.GreedyPolicy(loop.policy), about)

    return save


def _measure(
    loop: BcMaxLoop,
    holdout: InliningProblem | None,
    record: dict[str, Any],
    directory: pathlib.Path,
) -> None:
    """Measure an iteration's policy, add that to its record, and write TensorBoard's curves.

    Each policy's values are at its number, 0 for the default. Iteration i fits policy i and
    explores around policy i - 1. `learned from`, `validation` and `held out` are runs of their own,
    so that TensorBoard draws them in one chart.
    """
    assert loop.learned is not None
    number, name = record["number"], record["learned"]
    started_s = time.monotonic()
    held_out = None if holdout is None else evaluate(holdout, loop.learned, "held-out")
    record["evaluating_s"] = 0.0 if held_out is None else time.monotonic() - started_s
    best_known = {"best_known_saving_percent": record["oracle_saving_percent"]}
    explored = {**loop.explored.curves(), **best_known}
    write_curves(directory, number, [(number, _fit_curves(record))])
    write_curves(directory / "learned from", number, [(number - 1, explored)])
    comparisons = (("validation", loop.validated), ("holdout", held_out))
    for (part, comparison), run in zip(comparisons, ("validation", "held out"), strict=True):
        record[part] = None
        if comparison is not None:
            record[part] = {"policy": name, **comparison.to_json()}
            write_curves(directory / run, number, [(number, comparison.curves())])


def _fit_curves(record: Mapping[str, Any]) -> dict[str, float | None]:
    fits = ("loss", "agreement", "margin", "outside_margin", "bold_margin", "score")
    renamed = {"rows": "labels", "flips": "explored_actions"}
    return {
        **{f"fit/{name}": record[name] for name in fits},
        **{f"fit/{shown}": record[name] for name, shown in renamed.items()},
        **{f"seconds/{part}": record[f"{part}_s"] for part in _PARTS},
    }


# The parts that the time of an iteration is divided into.
_PARTS = ("collecting", "training", "validating", "evaluating")


def _result(
    loop: BcMaxLoop,
    records: Sequence[Mapping[str, Any]],
    chosen: int,
    config: Config,
    environment: str,
    workdir: Workdir,
) -> dict[str, Any]:
    policy = workdir.checkpoint(chosen) / "policy"
    return {
        "environment": environment,
        "agent": "bc_max",
        "seed": config.seed,
        "iterations": config.iterations,
        "environment_steps": loop.environment_steps,
        # In one process nothing is sent, and nothing waits for slower workers.
        "seconds": {"broadcasting": 0.0, "waiting": 0.0}
        | {part: sum(record[f"{part}_s"] for record in records) for part in _PARTS},
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
