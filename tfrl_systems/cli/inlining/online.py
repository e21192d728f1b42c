"""`tfrl train inlining` with PPO or REINFORCE, once the command line is read."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from environments import contexts
from environments.errors import UserError
from environments.inlining.collection import Collector, Failure
from environments.inlining.compilation import DEFAULT_TIMEOUT_S
from environments.inlining.compilers import make_compiler
from environments.inlining.corpus import Module
from environments.inlining.environment import InliningEnvironment
from environments.inlining.exploration import ExplorationConfig
from environments.inlining.heuristics import make_heuristic
from environments.inlining.object_size import ObjectSize
from environments.inlining.trajectories import TrajectoryStore
from tfrl_systems.cli import online
from tfrl_systems.cli.console import Progress, percent, say, show, show_json
from tfrl_systems.cli.inlining.corpora import Corpora
from tfrl_systems.cli.inlining.problem import InliningProblem
from tfrl_systems.cli.inlining.workers import make_collector
from tfrl_systems.drivers.episode_driver import EpisodeRunner
from tfrl_systems.policies import variables
from tfrl_systems.policies.actor_policy import ActorPolicy
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.training.checkpoints import Workdir, open_workdir
from tfrl_systems.training.decisions import decision_specs
from tfrl_systems.training.evaluation import evaluate
from tfrl_systems.training.online import Config, EvaluateFn, OnIteration
from tfrl_systems.training.warm_start import follow_feature

Values = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class EpisodeConfig:
    """What episodes are played, and how the first ones are.

    Attributes:
      default_probability: of LLVM's own decision, at each call site under the first policy; 0.5 to
        begin without knowing it.
      max_bitcode_bytes: larger modules are not learned on, because each is compiled many times; 0
        for no limit.
    """

    default_probability: float = 0.95
    max_bitcode_bytes: int = 600_000


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """Makes a worker's runner; each has a compiler of its own.

    Attributes:
      compiler: name of the compiler.
      modules: one is drawn for each episode.
      default_sizes: theirs, by name.
      actor: a policy without variables, which are broadcast.
      num_episodes: of a chunk.
    """

    compiler: str
    modules: Sequence[Module]
    default_sizes: Mapping[str, ObjectSize]
    actor: NumpyActor
    num_episodes: int

    def __call__(self) -> EpisodeRunner:
        """The runner."""
        environment = InliningEnvironment(
            contexts.uniform(self.modules),
            make_compiler(self.compiler),
            default_sizes=self.default_sizes,
        )
        return EpisodeRunner([environment], self.actor, self.num_episodes)


def run(options: argparse.Namespace, values: Values) -> int:
    """Trains as the command line says; `values` are those of --set, by group."""
    config = Config(**{**values["loop"], "seed": options.seed})
    agent_config = online.agent_config(options.agent, values["agent"], options.seed)
    episodes = EpisodeConfig(**values["episodes"])
    _check(episodes)
    corpora = Corpora.of(options)
    settings = {
        **corpora.settings(),
        **dataclasses.asdict(episodes),
        **online.settings(options.agent, agent_config, config),
    }
    with open_workdir(options.workdir, settings, resume=options.resume) as workdir:
        result = workdir.result()
        if result is not None:
            say(f"{options.workdir}: already finished")
        else:
            corpora.warn_of_overlap()
            result = _train(options, corpora, (config, agent_config, episodes), workdir)
    _show(options, result)
    return 0


def _check(episodes: EpisodeConfig) -> None:
    if not 0 < episodes.default_probability < 1:
        raise UserError(
            "inlining: expected default_probability between 0 and 1, found "
            f"{episodes.default_probability}; correct it (--set default_probability=…)"
        )


def _train(
    options: argparse.Namespace,
    corpora: Corpora,
    configs: tuple[Config, Any, EpisodeConfig],
    workdir: Workdir,
) -> dict[str, Any]:
    config, agent_config, episodes = configs
    learned_on = corpora.learned_on(episodes.max_bitcode_bytes)
    with (
        contextlib.closing(TrajectoryStore(options.cache)) as store,
        Progress() as progress,
        make_collector(options.compiler, store, options.workers) as collector,
    ):
        default_sizes = _default_sizes(collector, learned_on, progress)
        modules = [module for module in learned_on if module.name in default_sizes]
        measured_on = corpora.holdout.modules if corpora.holdout is not None else modules
        problem = InliningProblem(collector, measured_on, ExplorationConfig(), progress.task)
        specs = decision_specs(problem.feature_names)
        agent = online.make_agent(options.agent, agent_config, *specs)
        follow_feature(agent.actor_network, problem.baseline_feature, episodes.default_probability)
        actor = NumpyActor.from_policy(agent.collect_policy)
        make_runner = MakeRunner(
            options.compiler, modules, default_sizes, actor, config.episodes_per_chunk
        )
        # Each episode may be compiled twice.
        timeout_s = 2 * config.episodes_per_chunk * DEFAULT_TIMEOUT_S
        num_workers = 0 if options.workers == 1 else options.workers
        with online.make_pool(make_runner, num_workers, timeout_s) as pool:
            return online.train(
                agent,
                config,
                pool,
                _evaluator(problem, collector, agent, progress),
                corpora.describe(options.agent),
                workdir,
                _teller(progress, config),
            )


def _default_sizes(
    collector: Collector, modules: Sequence[Module], progress: Progress
) -> dict[str, ObjectSize]:
    """Sizes under LLVM's own decisions, by name, of the modules in which there are some.

    Raises:
      UserError: there are none in any of them.
    """
    task = progress.task("default", len(modules))
    found = {}
    # The largest first: the workers then end together.
    ordered = sorted(modules, key=lambda one: (-one.path.stat().st_size, one.name))
    for played in collector.play(ordered, make_heuristic("default"), task):
        if isinstance(played, Failure):
            progress.say(f"left out: {played.message}")
        elif len(played.decisions):
            found[played.module] = played.size
    collector.close()
    if not found:
        raise UserError(
            f"corpus: expected modules with call sites to decide, found none among {len(modules)}; "
            "name another by --corpus"
        )
    return found


def _evaluator(
    problem: InliningProblem, collector: Collector, agent: Any, progress: Progress
) -> EvaluateFn:
    """Compiles all modules of a problem under the greedy policy."""
    actor = NumpyActor.from_policy(agent.collect_policy)
    names = [one.path[0] for one in agent.actor_network.inputs]

    def measure(data: bytes) -> Mapping[str, float]:
        actor.load(data)
        policy = ActorPolicy(actor.network, names, variables.sha256(data))
        found = evaluate(problem, policy, problem.baseline("default"), "evaluation").to_json()
        collector.close()  # until the next time, which is far, its compilers are not needed
        problem.tell_failures(progress.say)
        del found["policy"]
        return found

    return measure


def _teller(progress: Progress, config: Config) -> OnIteration:
    count = online.make_teller(progress, config)

    def tell(record: Mapping[str, Any]) -> None:
        if "evaluation" in record:
            found = record["evaluation"]
            progress.say(
                f"iteration {record['iteration']}: {percent(found['cost'], found['default_cost'])} "
                f"against LLVM's own decisions, {found['worse']} of {found['contexts']} worse, "
                f"{100 * found['changed']:.1f}% of decisions changed"
            )
        count(record)

    return tell


def _show(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    if options.json:
        show_json(result)
        return
    corpus = options.holdout or options.corpus
    show(
        f"policy       {options.workdir}/policy\n"
        f"curves       tensorboard --logdir {options.workdir}/tensorboard\n"
        f"time         {online.describe_seconds(result['seconds'])}\n"
        f"next         tfrl evaluate inlining --policy {options.workdir}/policy --policy default "
        f"--corpus {corpus}"
    )
