"""`tfrl train inlining`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.compilers import make_compiler
from environments.inlining.corpus import Corpus, Module
from environments.inlining.exploration import ExplorationConfig
from environments.inlining.trajectories import TrajectoryStore
from tfrl_systems.agents import bc_max
from tfrl_systems.cli.console import Progress, percent, say, show, show_json
from tfrl_systems.cli.inlining.problem import InliningProblem, modules_to_learn_on
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
    corpus = Corpus.load(options.corpus)
    holdout = Corpus.load(options.holdout) if options.holdout else None
    identity = make_compiler(options.compiler).identity
    settings = {
        "environment": "inlining",
        "agent": options.agent,
        "compiler": identity,
        "corpus_sha256": corpus_digest(corpus),
        "holdout_sha256": corpus_digest(holdout) if holdout else None,
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
            metadata = _metadata(options, identity, settings)
            result = _train(
                options, (corpus, holdout), (config, agent_config, exploration), workdir, metadata
            )
    _show(options, result)
    return 0


def _train(
    options: argparse.Namespace,
    corpora: tuple[Corpus, Corpus | None],
    configs: tuple[Config, bc_max.Config, ExplorationConfig],
    workdir: Workdir,
    metadata: Mapping[str, Any],
) -> dict[str, Any]:
    corpus, holdout = corpora
    config, agent_config, exploration = configs
    if holdout is not None:
        _warn_of_overlap(corpus, holdout)
    store = TrajectoryStore(options.cache)
    with (
        Progress() as progress,
        make_collector(options.compiler, store, options.workers) as collector,
    ):

        def make_problem(modules: Sequence[Module]) -> InliningProblem:
            return InliningProblem(collector, modules, exploration, progress.task, config.seed)

        learned_on = modules_to_learn_on(corpus.modules, exploration)
        if len(learned_on) < len(corpus.modules):
            progress.say(
                f"{len(corpus.modules) - len(learned_on)} of {len(corpus.modules)} modules are "
                f"larger than {exploration.max_bitcode_bytes} bytes and not learned on "
                "(--set max_bitcode_bytes=0 takes them too)"
            )
        problem = make_problem(learned_on)
        held_out = make_problem(holdout.modules) if holdout is not None else None
        told: set[str] = set()

        def on_iteration(record: Mapping[str, Any], resumed: bool) -> None:
            for part in (problem, held_out):
                for name, message in (part.failures if part else {}).items():
                    if name not in told:
                        told.add(name)
                        progress.say(f"left out: {message}")
            progress.say(_describe(record, resumed))

        result = run_bc_max(
            problem, held_out, config, agent_config, workdir, metadata, on_iteration
        )
    store.close()
    return result


def corpus_digest(corpus: Corpus) -> str:
    """Hash of the modules' names and contents."""
    try:
        lines = [f"{one.name}\0{one.sha256}\0{' '.join(one.command)}" for one in corpus.modules]
    except OSError as error:
        raise UserError(
            f"{corpus.directory}: expected to read its modules, found: {error}; build it again"
        ) from error
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _warn_of_overlap(corpus: Corpus, holdout: Corpus) -> None:
    learned_on = {module.sha256 for module in corpus.modules}
    shared = [module.name for module in holdout.modules if module.sha256 in learned_on]
    if shared:
        say(
            f"warning: {len(shared)} of the modules in --holdout are in --corpus too, for instance "
            f"{shared[0]}; what is measured on them says nothing about new code"
        )


def _without_seed(config: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(config).items() if name != "seed"}


def _metadata(
    options: argparse.Namespace, identity: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What policy.json says beside the model."""
    return {
        "environment": "inlining",
        "agent": options.agent,
        "compiler": identity,
        "corpus": options.corpus.resolve().name,
        "corpus_sha256": settings["corpus_sha256"],
        "seed": options.seed,
        "run": settings,
        "use": [
            "tfrl evaluate inlining --policy DIR --corpus CORPUS",
            "tfrl_systems.policies.numpy_policy.NumpyPolicy.load(DIR)",
            "tf.saved_model.load(DIR)",
        ],
    }


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
