"""The learning task of tensor_graphs: to rewrite models."""

from __future__ import annotations

import collections
import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments import contexts
from environments.contexts import ContextSampler
from environments.tensor_graphs.costs.objectives import make_objective
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.models import families
from environments.tensor_graphs.observation.observation import VOCABULARY
from environments.tensor_graphs.settings import Settings
from tfrl_systems.drivers.episode_runner import Actor, EpisodeRunner
from tfrl_systems.drivers.requirements import here
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import percent
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy, digest_of
from tfrl_systems.systems.tensor_graphs.problem import Problem, sizes_of_models
from tfrl_systems.systems.tensor_graphs.teaching import Teacher, Teaching
from tfrl_systems.training.loop import EvaluateFn
from tfrl_systems.training.online import OnlineTask
from tfrl_systems.training.pictures import Heatmap
from tfrl_systems.training.training_run import TrainingRun

# Room for any model, while the first observation's contents are counted.
_MOST = 1 << 15
# Each size is so many times the first observation's count, to leave room for what rules add.
_GROWTH = {"max_nodes": 2, "max_edges": 2, "max_locations": 3, "max_actions": 3}
# How many members of a family show the room that observations need, and how many are evaluated on.
_NUM_SIZED, NUM_EVALUATED = 40, 4


def with_room(run: TrainingRun) -> TrainingRun:
    """Return the same run; sizes of observations that are 0 are replaced by what the models need.

    Raises:
      UserError: a model or the rules cannot be used.
    """
    settings = run.settings["environment"]
    zeros = [name for name in _GROWTH if getattr(settings, name) == 0]
    if not zeros:
        return run
    rooms: dict[str, Any] = dict.fromkeys(_GROWTH, _MOST)
    roomy = dataclasses.replace(settings, max_steps=1, truncate=True, masked=True, **rooms)
    needed = dict.fromkeys(_GROWTH, 0)
    # Costs do not matter here, and those of other objectives would have to be measured.
    problem = dataclasses.replace(run.problem, objective="analytic")
    for name in run.problem.models:
        for size, count in _counts(problem, roomy, name).items():
            needed[size] = max(needed[size], count)
    sizes: dict[str, Any] = {name: _GROWTH[name] * needed[name] for name in zeros}
    truncate = settings.truncate or len(sizes) == len(_GROWTH)
    sized = dataclasses.replace(settings, **sizes, truncate=truncate)
    return dataclasses.replace(run, settings={**run.settings, "environment": sized})


def make_environment(
    problem: Problem, settings: Settings, sampler: ContextSampler[Model] | None = None
) -> TensorGraphEnvironment:
    """Make an environment whose episodes begin at the models, each with the same probability.

    The settings have room for the models. A `sampler` draws other ones than the problem's.

    Raises:
      UserError: a model, the rules, the objective or a setting cannot be used.
    """
    return TensorGraphEnvironment(
        sampler or sampler_of(problem.models),
        settings,
        problem.load_rules()[0],
        make_objective(problem.objective, sizes_of_models(problem.models, problem.dimensions)),
    )


@functools.cache
def _counts(problem: Problem, settings: Settings, name: str) -> dict[str, int]:
    """Count what first observations hold at most, by name of the size that bounds it.

    The settings have room for any model. Of a family some members are looked at.
    """
    models = families.members(name, 0, _NUM_SIZED) or (name,)
    remaining = iter(models)
    # Each model is loaded only when its turn comes.
    environment = make_environment(problem, settings, lambda generator: _load(next(remaining)))
    counts: collections.Counter[str] = collections.Counter()
    for _ in models:
        seen = environment.reset().observation
        counts |= collections.Counter(
            max_nodes=int(seen["n_node"][0]),
            max_edges=int(seen["n_edge"][0]),
            max_locations=int(seen["location_masks"].sum(axis=1).max()),
            max_actions=int(seen["action_mask"].sum()),
        )
    return counts


def make_runner(
    problem: Problem, settings: Settings, num_episodes: int, actor: Actor
) -> EpisodeRunner:
    """Make a worker's runner, whose chunks have `num_episodes` episodes."""
    return EpisodeRunner([make_environment(problem, settings)], actor, num_episodes)


def online_task(run: TrainingRun) -> OnlineTask:
    """Make the task of all agents; `run` has been through `with_room`."""
    problem, settings = run.problem, run.settings["environment"]
    environment = make_environment(problem, settings)
    num_episodes = run.settings["loop"].episodes_per_chunk
    return OnlineTask(
        environment.time_step_spec(),
        environment.action_spec(),
        lambda actor: functools.partial(make_runner, problem, settings, num_episodes, actor),
        lambda agent: _evaluator(problem, settings, agent),
        about={
            **problem.describe(),
            **dataclasses.asdict(settings),
            "vocabulary": VOCABULARY,
            "rules_sha256": digest_of(environment.rules),
            "use": [
                "tfrl optimize model.onnx -o fast.onnx --method policy --policy DIR",
                "tfrl evaluate tensor_graphs --model model.onnx --policy DIR --policy regions",
            ],
        },
        make_teacher=lambda actor: functools.partial(
            _make_teacher,
            problem,
            settings,
            actor,
            run.settings["teaching"],
            run.settings["agent"].regret_weight > 0,
            num_episodes,
        ),
        describe=lambda figures: (
            f"{percent(figures['cost'], 1.0)} of estimated cost, mean of the models"
        ),
        requirements=problem.requirements(),
    )


def _make_teacher(
    problem: Problem,
    settings: Settings,
    actor: NumpyActor,
    teaching: Teaching,
    has_regrets: bool,
    num_contexts: int,
) -> Teacher:
    # Patience ends the policy's episodes only: the path of a lesson may be longer.
    environment = make_environment(problem, dataclasses.replace(settings, patience=0))
    return Teacher(environment, actor, teaching, settings.patience, has_regrets, num_contexts)


def _evaluator(problem: Problem, settings: Settings, agent: Any) -> EvaluateFn:
    """Return a function that rewrites each model by the likeliest actions and counts the rules.

    Of families it rewrites a few members that training never draws. A policy that learned without
    masks is limited to what is allowed, like those that learned with them.
    """
    settings = dataclasses.replace(settings, random_steps=0, masked=True)
    environments = {
        model: make_environment(problem, settings, sampler_of([model]))
        for name in problem.models
        for model in families.members(name, families.FIRST_UNSEEN, NUM_EVALUATED) or (name,)
    }
    actor = NumpyActor.from_policy(agent.collect_policy)

    def evaluate_fn(variables: bytes) -> Mapping[str, float | Heatmap]:
        actor.load(variables)
        policy = GraphPolicy(actor.network)
        figures: dict[str, float] = {}
        counts: dict[str, collections.Counter[str]] = {}
        for name, environment in environments.items():
            environment.reset()
            episode = environment.episode
            counts[name] = collections.Counter(match.rule for match, _ in policy.play(episode))
            figures[f"cost/{name}"] = episode.best.cost_ms / episode.view.start_cost_ms
            figures[f"steps/{name}"] = float(episode.num_steps)
        costs = [value for name, value in figures.items() if name.startswith("cost/")]
        rules = Heatmap.of("applications of rules", counts)
        return {"cost": statistics.fmean(costs), **figures, "rules": rules}

    return evaluate_fn


def sampler_of(names: Sequence[str]) -> ContextSampler[Model]:
    """Make a sampler that draws a name, each with the same probability, and then a model of it.

    A family has another member in each episode, with a number below `families.FIRST_UNSEEN`.

    Raises:
      UserError: a model cannot be read.
    """
    draw = contexts.uniform([_sampler_of_name(name) for name in names])
    return lambda generator: draw(generator)(generator)


def _sampler_of_name(name: str) -> ContextSampler[Model]:
    if not families.named(name):
        model = _load(name)
        return lambda generator: model
    return functools.partial(_draw_member, families.named(name))


def _load(name: str) -> Model:
    """Load a model; members are not kept, because there are too many."""
    return Model.load(name) if families.is_member(name) else _load_once(name)


@functools.cache
def _load_once(name: str) -> Model:
    """Load a model under the name that it was asked for by, wherever its file lies.

    Environments can share models, because graphs are immutable.
    """
    return dataclasses.replace(Model.load(str(here(name))), name=name)


def _draw_member(named: Sequence[str], generator: np.random.Generator) -> Model:
    family = contexts.uniform(named)(generator)
    return _load(f"{family}:{int(generator.integers(families.FIRST_UNSEEN))}")
