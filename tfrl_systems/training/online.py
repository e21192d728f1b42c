"""Training with PPO, REINFORCE and other online agents, for every system: collect, then learn."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tf_agents.agents import tf_agent
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.agents.policy_gradients import NetworkConfig
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.direction_runner import MEAN_RETURN, DirectionRunner, ScoreFn
from tfrl_systems.drivers.group_runner import GroupRunner, LessonRunner
from tfrl_systems.drivers.jobs import Chunk, MakeRunner, Pool
from tfrl_systems.drivers.requirements import Requirements
from tfrl_systems.drivers.trial_runner import Log, RowFunction, TrialPool, TrialRunner
from tfrl_systems.episodes import Experience
from tfrl_systems.policies import policy_files
from tfrl_systems.policies.directions import SIGNS
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.loop import EvaluateFn, OnIteration, OnlineLoop, run_online
from tfrl_systems.training.training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class OnlineTask:
    """What training needs from a system to learn a policy in it online.

    Attributes:
      time_step_spec: time step spec of the system's environments.
      action_spec: action spec of the system's environments.
      make_runner: actor without variables -> function that makes a worker's runner. The function is
        sent to the workers.
      make_evaluate_fn: agent -> function that measures the agent's policy.
      about: further entries of policy.json, besides the model, environment and agent.
      begin: agent -> None; prepares the agent's first policy.
      prepare: (directory of the run, reporter) -> what was counted; called before runners are made.
        What it measures stays in the directory for when the run is resumed.
      describe: evaluation -> one line for people to read, or "".
      timeout_s: seconds that a worker may take for one chunk.
      score_fn: what episodes came to, for agents that compare policies by whole chunks.
      make_teacher: the same as `make_runner`, for agents that clone: the runner gives episodes of
        the system's teachers and of the policy (`agents.bc_max`). None where there are no other
        teachers than the policy itself.
      requirements: what runners need where they run.
      make_function: makes in a worker the function that agents of trials evaluate. None in systems
        without such a function.
      open_log: directory of the run -> where its trials are written down.
    """

    time_step_spec: ts.TimeStep
    action_spec: Any
    make_runner: Callable[[NumpyActor], MakeRunner[Chunk, Experience]]
    make_evaluate_fn: Callable[[Any], EvaluateFn]
    about: Mapping[str, Any]
    begin: Callable[[Any], None] = lambda agent: None
    prepare: Callable[[Workdir, Reporter], Mapping[str, int]] = lambda workdir, reporter: {}
    describe: Callable[[Mapping[str, Any]], str] = lambda evaluation: ""
    timeout_s: float = 300.0
    score_fn: ScoreFn = MEAN_RETURN
    make_teacher: Callable[[NumpyActor], MakeRunner[Chunk, Experience]] | None = None
    requirements: Requirements = Requirements()
    make_function: Callable[[], RowFunction] | None = None
    open_log: Callable[[Workdir], Log] | None = None


@dataclasses.dataclass(frozen=True)
class Way:
    """A way of collecting what an agent learns from; the agent's module names it by `COLLECTS`.

    Attributes:
      make_runner: (run, task, agent, actor without variables) -> what makes a worker's runner, and
        how many times the episodes of a chunk such a runner plays.
      training_data: what a pool collected -> what the agent's `train` takes.
      counts_evaluation: whether `environment_steps` counts the steps of evaluations too, because an
        agent is judged by how few real steps it needs.
      make_pool: (run, task, agent, workdir, pool of runners) -> the pool that the loop collects by.
    """

    make_runner: Callable[[TrainingRun, OnlineTask, Any, NumpyActor], tuple[Any, int]]
    training_data: Callable[[Any], Any] = lambda collected: collected
    counts_evaluation: bool = False
    make_pool: Callable[..., Pool[Chunk, Any] | TrialPool] = (
        lambda run, task, agent, workdir, pool: pool
    )


def _episodes(run: TrainingRun, task: OnlineTask, agent: Any, actor: NumpyActor) -> tuple[Any, int]:
    """Play each context once; or several times, to compare its episodes."""
    group = run.settings["agent"].group
    make_runner: Any = task.make_runner(actor)
    if group == 1:
        return make_runner, 1
    return functools.partial(GroupRunner, make_runner, group), group


def _lessons(run: TrainingRun, task: OnlineTask, agent: Any, actor: NumpyActor) -> tuple[Any, int]:
    """Let the system's teachers play too; where there are none, let the policy play repeatedly."""
    attempts = run.settings["agent"].attempts
    if task.make_teacher is not None:
        return task.make_teacher(actor), attempts
    make_runner: Any = task.make_runner(actor)
    return functools.partial(LessonRunner, make_runner, attempts), attempts


def _directions(
    run: TrainingRun, task: OnlineTask, agent: Any, actor: NumpyActor
) -> tuple[Any, int]:
    perturbation = agent.perturbation(run.settings["loop"].iterations)
    make_runner = task.make_runner(actor)
    return functools.partial(DirectionRunner, make_runner, perturbation, task.score_fn), len(SIGNS)


def _trials(run: TrainingRun, task: OnlineTask, agent: Any, actor: NumpyActor) -> tuple[Any, int]:
    """Evaluate the system's function where the agent proposes."""
    if task.make_function is None:
        raise UserError(
            f"{run.agent}: expected a system with a function to evaluate, found {run.system}, "
            "whose episodes have states; take another agent"
        )
    return functools.partial(TrialRunner, task.make_function), 1


def _remembering(
    run: TrainingRun, task: OnlineTask, agent: Any, workdir: Workdir, pool: Pool[Chunk, Any]
) -> TrialPool:
    assert task.open_log is not None
    evaluations = run.settings["agent"].evaluations
    return TrialPool(pool, agent, evaluations, task.open_log(workdir))


def _padded(collected: Experience) -> Any:
    return collected.with_usual_length().trajectory


WAYS: Mapping[str, Way] = {
    "episodes": Way(_episodes, _padded),
    "lessons": Way(_lessons),
    "directions": Way(_directions),
    "dreams": Way(_episodes, _padded, counts_evaluation=True),
    "trials": Way(_trials, make_pool=_remembering),
}


def make_agent(run: TrainingRun, task: OnlineTask) -> Any:
    """Make the run's agent, before it has learned anything.

    Raises:
      UserError: a setting is out of its range, or the agent cannot learn with the system's specs.
    """
    config = run.settings["agent"]
    agent = run.how.make_agent(config, task.time_step_spec, task.action_spec)
    task.begin(agent)
    if isinstance(config, NetworkConfig) and config.warm_start:
        _copy_actor(agent.actor_network, config.warm_start)
    return agent


def _copy_actor(network: Any, directory: str) -> None:
    """Give an actor network the weights of a saved policy.

    Raises:
      UserError: the directory holds no policy, or one whose network has other variables.
    """
    described, kind = policy_files.load_policy_json(directory), network.describe()["kind"]
    if described["kind"] != kind:
        raise UserError(
            f"{directory}: expected a policy of the kind {kind}, as this run learns one, found "
            f"{described['kind']}; name another, or give PPO one answer (--set components=1)"
        )
    arrays = policy_files.load_arrays(directory, described)
    named = network.named_variables()
    wanted = {name: tuple(variable.shape) for name, variable in named.items()}
    saved = {name: array.shape for name, array in arrays.items()}
    if wanted != saved:
        differing = [name for name in sorted(wanted | saved) if wanted.get(name) != saved.get(name)]
        raise UserError(
            f"{directory}: expected a policy with the network of this run, found another "
            f"{differing[0]}: {saved.get(differing[0])}, not {wanted.get(differing[0])}; give this "
            "run the sizes of that one (--set hidden_sizes=…), or another warm_start"
        )
    for name, variable in named.items():
        variable.assign(arrays[name])


def train(
    run: TrainingRun, task: OnlineTask, workdir: Workdir, collect: Collect, reporter: Reporter
) -> dict[str, Any]:
    """Train, or go on with the run in `workdir`; return the contents of result.json."""
    config = run.settings["loop"]
    way, agent = WAYS[run.how.collects], make_agent(run, task)
    counts = task.prepare(workdir, reporter)
    about = {**task.about, "environment": run.system, "agent": run.agent}

    def learn(iteration: int, collected: Any) -> tf_agent.LossInfo:
        loss_info = agent.train(way.training_data(collected))
        # Move on only after learning, so that experience is collected and learned from at the same
        # progress (standard deviation, learning rate).
        agent.set_progress((iteration + 1) / config.iterations)
        return loss_info

    def save(directory: pathlib.Path) -> None:
        described = {**about, "seed": config.seed, "run": dict(workdir.settings)}
        save_policy(directory, agent.policy, described)

    actor = NumpyActor.from_policy(agent.collect_policy)
    make_runner, num_rounds = way.make_runner(run, task, agent, actor)
    supervision = Supervision(timeout_s=num_rounds * task.timeout_s)
    with make_pool(collect, make_runner, supervision, task.requirements) as runners:
        pool = way.make_pool(run, task, agent, workdir, runners)
        return run_online(
            OnlineLoop(agent, learn, pool, config, way.counts_evaluation, counts),
            config,
            workdir,
            task.make_evaluate_fn(agent),
            save,
            {name: about[name] for name in ("environment", "agent")},
            _teller(task, reporter, config.iterations),
        )


def _teller(task: OnlineTask, reporter: Reporter, iterations: int) -> OnIteration:
    """Return a function that reports finished iterations, failed chunks and evaluations."""
    advance = reporter.task("iterations", iterations)
    num_reported = 0

    def tell(record: Mapping[str, Any]) -> None:
        nonlocal num_reported
        for message in record["failures"]:
            reporter.say(f"left out: {message}")
        line = task.describe(record["evaluation"]) if "evaluation" in record else ""
        if line:
            reporter.say(f"iteration {record['iteration']}: {line}")
        advance(record["iteration"] - num_reported)
        num_reported = record["iteration"]

    return tell
