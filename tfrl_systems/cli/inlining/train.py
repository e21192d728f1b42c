"""`tfrl train inlining`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from environments.inlining.corpus import Module
from environments.inlining.exploration import ExplorationConfig
from environments.inlining.trajectories import TrajectoryStore
from tfrl_systems.agents import bc_max
from tfrl_systems.cli.console import Progress, percent, say, show, show_json
from tfrl_systems.cli.inlining.corpora import Corpora
from tfrl_systems.cli.inlining.problem import InliningProblem
from tfrl_systems.cli.inlining.workers import make_collector
from tfrl_systems.training.bc_max import Config
from tfrl_systems.training.checkpoints import Workdir, open_workdir
from tfrl_systems.training.run import run_bc_max

Values = Mapping[str, Mapping[str, Any]]


def run(options: argparse.Namespace, values: Values) -> int:
    """Trains as the command line says; `values` are those of --set, by group."""
    config = Config(**{**values["loop"], "seed": options.seed})
    agent_config = bc_max.Config(**values["agent"])
    exploration = ExplorationConfig(**{**values["exploration"], "seed": options.seed})
    corpora = Corpora.of(options)
    settings = {
        "agent": options.agent,
        **corpora.settings(),
        "seed": options.seed,
        **_without_seed(exploration),
        **_without_seed(agent_config),
        **{name: value for name, value in _without_seed(config).items() if name != "iterations"},
    }
    with open_workdir(options.workdir, settings, resume=options.resume) as workdir:
        result = workdir.result()
        if result is not None and result["iterations"] == config.iterations:
            say(f"{options.workdir}: already finished")
        else:
            result = _train(options, corpora, (config, agent_config, exploration), workdir)
    _show(options, result)
    return 0


def _train(
    options: argparse.Namespace,
    corpora: Corpora,
    configs: tuple[Config, bc_max.Config, ExplorationConfig],
    workdir: Workdir,
) -> dict[str, Any]:
    config, agent_config, exploration = configs
    corpora.warn_of_overlap()
    learned_on = corpora.learned_on(exploration.max_bitcode_bytes)
    store = TrajectoryStore(options.cache)
    with (
        Progress() as progress,
        make_collector(options.compiler, store, options.workers) as collector,
    ):

        def make_problem(modules: Sequence[Module]) -> InliningProblem:
            return InliningProblem(collector, modules, exploration, progress.task, config.seed)

        problem = make_problem(learned_on)
        held_out = make_problem(corpora.holdout.modules) if corpora.holdout is not None else None

        def on_iteration(record: Mapping[str, Any], resumed: bool) -> None:
            for part in (problem, held_out):
                if part is not None:
                    part.tell_failures(progress.say)
            progress.say(_describe(record, resumed))

        result = run_bc_max(
            problem,
            held_out,
            config,
            agent_config,
            workdir,
            {**corpora.describe("bc_max"), "seed": config.seed, "run": dict(workdir.settings)},
            on_iteration,
        )
    store.close()
    return result


def _without_seed(config: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(config).items() if name != "seed"}


def _describe(record: Mapping[str, Any], resumed: bool) -> str:
    default = record["default_cost"]
    parts = [
        f"iteration {record['number']}{' (kept)' if resumed else ''}: {record['policy']} "
        f"{percent(record['policy_cost'], default)}, best known "
        f"{percent(record['oracle_cost'], default)}",
        f"{record['flips']} decisions explored",
    ]
    if record["holdout"] is not None:
        found = record["holdout"]
        parts.append(
            f"{record['learned']} on held-out modules "
            f"{percent(found['cost'], found['default_cost'])}, "
            f"{found['worse']} of {found['contexts']} worse"
        )
    return "; ".join(parts)


def _show(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    if options.json:
        show_json(result)
        return
    seconds = result["seconds"]
    corpus = options.holdout or options.corpus
    show(
        f"policy       {options.workdir}/policy\n"
        f"curves       tensorboard --logdir {options.workdir}/tensorboard\n"
        f"time         {seconds['collecting']:.0f} s collecting, {seconds['training']:.0f} s "
        f"fitting, {seconds['evaluating']:.0f} s evaluating\n"
        f"next         tfrl evaluate inlining --policy {options.workdir}/policy --policy default "
        f"--corpus {corpus}"
    )
