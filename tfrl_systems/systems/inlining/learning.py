"""The learning tasks of inlining: online, and from trajectories."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments import contexts
from environments.errors import Failure, UserError
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import CompilePlainly
from environments.inlining.compilers.compilation import DEFAULT_TIMEOUT_S
from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Corpus, Module, largest_first
from environments.inlining.environment import InliningEnvironment, relative_saving
from environments.inlining.exploration.explore import ExplorationConfig
from environments.inlining.features import Scope
from environments.inlining.linking.objective import (
    Counted,
    Objective,
    make_objective,
    read_counted,
)
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.episodes import Experience
from tfrl_systems.networks import actors
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter, percent
from tfrl_systems.systems.inlining.corpora import Corpora, small_modules
from tfrl_systems.systems.inlining.imitation.comparison import evaluate
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem
from tfrl_systems.systems.inlining.imitation.run import describe, run_bc_max
from tfrl_systems.systems.inlining.policy.actor_policy import ActorPolicy
from tfrl_systems.systems.inlining.policy.decision_policy import decision_specs
from tfrl_systems.systems.inlining.problem import SCOPES
from tfrl_systems.systems.inlining.workers import (
    at_hand,
    make_collector,
    requirements_of,
    say_how_it_is_steered,
)
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.loop import EvaluateFn
from tfrl_systems.training.online import OnlineTask
from tfrl_systems.training.training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class EpisodeConfig:
    """Settings of the episodes of online learning.

    Attributes:
      default_probability: probability with which the first policy takes LLVM's own decision at each
        call site; 0.5 to begin without knowledge of it.
      max_bitcode_bytes: size of the largest module to learn on, because each module is compiled
        many times; 0 for no limit.
    """

    default_probability: float = 0.85
    max_bitcode_bytes: int = 200_000


def make_runner(
    compiler: str,
    modules: Sequence[Module],
    default_sizes: Mapping[str, ObjectSize],
    objective: Objective,
    scope_feature: str,
    num_episodes: int,
    actor: NumpyActor,
) -> EpisodeRunner:
    """Make a worker's runner, with a compiler of its own; each episode draws one of the modules.

    For `default_sizes` and `scope_feature` see `InliningEnvironment`. The actor comes without
    variables; the pool broadcasts those.
    """
    environment = InliningEnvironment(
        contexts.uniform([at_hand(module) for module in modules]),
        make_compiler(compiler),
        default_sizes=default_sizes,
        objective=objective,
        scope_feature=scope_feature,
    )
    return EpisodeRunner([environment], actor, num_episodes)


@contextlib.contextmanager
def online_task(run: TrainingRun, collect: Collect, reporter: Reporter) -> Iterator[OnlineTask]:
    """Give the task that PPO and REINFORCE learn; the first policy decides nearly as LLVM does."""
    episodes: EpisodeConfig = run.settings["episodes"]
    num_episodes = run.settings["loop"].episodes_per_chunk
    _check(episodes)
    counted = read_counted(run.settings["objective"].objective)
    scope_feature = SCOPES[run.settings["scope"].scope]
    corpora = Corpora.of(run.problem)
    corpora.warn_of_overlap(reporter)
    learned_on = small_modules(corpora.corpus.modules, episodes.max_bitcode_bytes, reporter)
    compiler = run.problem.compiler
    requirements = requirements_of(compiler, corpora.corpus, corpora.holdout)
    with (
        contextlib.closing(TrajectoryStore(run.problem.cache)) as store,
        make_collector(compiler, store, collect, requirements=requirements) as collector,
    ):
        default_sizes = _default_sizes(collector, learned_on, scope_feature, reporter)
        modules = [module for module in learned_on if module.name in default_sizes]
        measured_on = corpora.holdout.modules if corpora.holdout is not None else modules
        objective = make_corpus_objective(counted, collector, corpora.corpus, reporter)
        drawn_from = compiler, modules, default_sizes, objective, scope_feature, num_episodes
        problem = InliningProblem(
            collector,
            measured_on,
            ExplorationConfig(),
            lambda: make_corpus_objective(
                counted, collector, corpora.holdout or corpora.corpus, reporter
            ),
            reporter.task,
        )
        yield OnlineTask(
            *decision_specs(problem.feature_names),
            lambda actor: functools.partial(make_runner, *drawn_from, actor),
            lambda agent: _evaluator(problem, collector, agent, scope_feature, reporter),
            {**corpora.describe(run.agent), "scope_feature": scope_feature},
            begin=lambda agent: follow_feature(
                agent.actor_network, problem.baseline_feature, episodes.default_probability
            ),
            describe=_describe,
            # Each episode may be compiled twice.
            timeout_s=2 * num_episodes * DEFAULT_TIMEOUT_S,
            score_fn=saving_of_all,
            requirements=requirements,
        )


def imitate(
    run: TrainingRun, workdir: Workdir, collect: Collect, reporter: Reporter
) -> dict[str, Any]:
    """Train with BC-Max, or go on with the run in `workdir`; return the contents of result.json."""
    exploration: ExplorationConfig = run.settings["exploration"]
    scope_feature = SCOPES[run.settings["scope"].scope]
    judged_by = read_counted(run.settings["objective"].objective)
    learned_by = judged_by._replace(copies=run.settings["objective"].label_objective)
    compiler = run.problem.compiler
    corpora = Corpora.of(run.problem)
    corpora.warn_of_overlap(reporter)
    say_how_it_is_steered(compiler, reporter)
    learned_on, chosen_on = corpora.divided()
    learned_on = small_modules(learned_on, exploration.max_bitcode_bytes, reporter)
    requirements = requirements_of(compiler, corpora.corpus, corpora.validation, corpora.holdout)
    with (
        contextlib.closing(TrajectoryStore(run.problem.cache)) as store,
        make_collector(compiler, store, collect, requirements=requirements) as collector,
    ):

        def make_problem(corpus: Corpus, modules: Sequence[Module], by: Counted) -> InliningProblem:
            make = functools.partial(make_corpus_objective, by, collector, corpus, reporter)
            how = exploration, make, reporter.task, run.seed, scope_feature
            return InliningProblem(collector, modules, *how)

        problem = make_problem(corpora.corpus, learned_on, learned_by)
        validation = make_problem(corpora.validation or corpora.corpus, chosen_on, judged_by)
        holdout = None
        if corpora.holdout is not None:
            holdout = make_problem(corpora.holdout, corpora.holdout.modules, judged_by)

        def on_iteration(record: Mapping[str, Any], resumed: bool) -> None:
            for part in (problem, validation, holdout):
                if part is not None:
                    part.tell_failures(reporter.say)
            reporter.say(describe(record, resumed))

        names = {"environment": run.system, "agent": run.agent, "seed": run.seed}
        return run_bc_max(
            problem,
            validation,
            holdout,
            run.settings["loop"],
            run.settings["agent"],
            workdir,
            {**corpora.describe(run.agent), **names, "run": dict(workdir.settings)},
            on_iteration,
        )


def make_corpus_objective(
    counted: Counted, collector: Collector, corpus: Corpus, reporter: Reporter
) -> Objective:
    """Make an objective for the projects of a corpus; compile it plainly if that is needed."""
    if counted.copies == "object":
        return Objective(table_weight=counted.table_weight)
    ordered = largest_first(corpus.modules)
    sizes = collector.map(CompilePlainly(), ordered, reporter.task("plain -Oz", len(ordered)))
    pairs = zip(ordered, sizes, strict=True)
    compiled = [(module, size) for module, size in pairs if isinstance(size, ObjectSize)]
    return make_objective(counted, compiled, corpus.num_sources)


def _check(episodes: EpisodeConfig) -> None:
    if not 0 < episodes.default_probability < 1:
        raise UserError(
            "inlining: expected default_probability between 0 and 1, found "
            f"{episodes.default_probability}; correct it (--set default_probability=…)"
        )


def _default_sizes(
    collector: Collector, modules: Sequence[Module], scope_feature: str, reporter: Reporter
) -> dict[str, ObjectSize]:
    """Return the sizes of plain -Oz objects, by name, of the modules with call sites in the scope.

    Raises:
      UserError: none of the modules has call sites to decide.
    """
    task = reporter.task("default", len(modules))
    sizes = {}
    for played in collector.play_default(largest_first(modules), task):
        if isinstance(played, Failure):
            reporter.say(f"left out: {played.message}")
        elif Scope.of(scope_feature, played.names).holds(played.features).any():
            sizes[played.module] = played.size
    collector.close()
    if not sizes:
        raise UserError(
            f"corpus: expected modules with call sites to decide, found none among {len(modules)}; "
            "name another by --corpus" + (", or --set scope=all" if scope_feature else "")
        )
    return sizes


def follow_feature(network: actors.ActorNetwork, feature: str, probability: float) -> None:
    """Make an actor begin with the action that a feature names, whatever else it sees.

    From there on training only has to find better decisions, and not to find the default's again.

    The first unit of each hidden layer passes the feature on, and the outputs read it. All other
    weights stay as they were drawn, so that training has something to start from. They move the
    probability by a few hundredths at most, because the output layer's initial weights are small.

    Args:
      network: an actor whose observation is a dict of numbers and whose actions are 0 and 1.
      feature: key of an observed integer that is 0 or 1.
      probability: initial probability of the action that the feature names, above 0 and below 1.
    """
    named = network.named_variables()
    activate = actors.ACTIVATIONS[network.describe()["activation"]]
    place = [field.path for field in network.inputs].index((feature,))
    # The network takes the signed logarithm of integers, so 0 and 1 enter as 0 and log 2.
    ends = np.log1p(np.array([0.0, 1.0], np.float32))
    num_layers = len(named) // 2
    for number in range(num_layers - 1):
        kernel, bias = (named[f"{kind}_{number}"] for kind in ("kernel", "bias"))
        weights, offsets = kernel.numpy(), bias.numpy()
        weights[:, 0] = 0
        weights[place, 0] = 2 / (ends[1] - ends[0])
        offsets[0] = -1 - weights[place, 0] * ends[0]
        kernel.assign(weights)
        bias.assign(offsets)
        ends, place = activate(np.array([-1.0, 1.0], np.float32)).numpy(), 0
    kernel, bias = (named[f"{kind}_{num_layers - 1}"] for kind in ("kernel", "bias"))
    weights = kernel.numpy()
    slope = np.log(probability / (1 - probability)) / (ends[1] - ends[0])
    weights[place] = [-slope, slope]
    kernel.assign(weights)
    bias.assign(-weights[place] * ends.mean())


def _evaluator(
    problem: InliningProblem,
    collector: Collector,
    agent: Any,
    scope_feature: str,
    reporter: Reporter,
) -> EvaluateFn:
    """Return a function that compiles all modules of a problem under the greedy policy."""
    actor = NumpyActor.from_policy(agent.collect_policy)
    names = tuple(feature.path[0] for feature in agent.actor_network.inputs)

    def measure(data: bytes) -> Mapping[str, float]:
        actor.load(data)
        fingerprint = variables.sha256(data) + scope_feature
        policy = ActorPolicy(actor.network, names, fingerprint, scope_feature=scope_feature)
        evaluation = evaluate(problem, policy, "evaluation").to_json()
        collector.close()  # the next evaluation is far, and the compilers are not needed till then
        problem.tell_failures(reporter.say)
        by_project = evaluation.pop("saving_percent_by_group")
        return {
            **evaluation,
            **{f"saving_percent/{name}": saving for name, saving in by_project.items()},
        }

    return measure


def saving_of_all(experience: Experience) -> float:
    """Return what the episodes' modules save together, as a share of what they cost by default.

    A program is as large as its modules together. The mean of their own savings would count a byte
    of a small module more than a byte of a large one.
    """
    info = experience.info
    return float(relative_saving(np.sum(info["cost_bytes"]), np.sum(info["default_cost_bytes"])))


def _describe(evaluation: Mapping[str, Any]) -> str:
    return (
        f"{percent(evaluation['cost'], evaluation['default_cost'])} against LLVM's own decisions, "
        f"{evaluation['worse']} of {evaluation['contexts']} worse, "
        f"{100 * evaluation['changed']:.1f}% of decisions changed"
    )
