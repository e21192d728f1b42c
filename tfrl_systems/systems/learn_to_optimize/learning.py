"""The learning task of learn_to_optimize: to minimise a function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from environments.learn_to_optimize.levels import Levels, measure_levels
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.learn_to_optimize import judging
from tfrl_systems.systems.learn_to_optimize.answers import Answers, Landscape
from tfrl_systems.systems.learn_to_optimize.judging import Judging
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
from tfrl_systems.systems.learn_to_optimize.problem import Resolved
from tfrl_systems.systems.learn_to_optimize.teaching import Teacher, make_teacher
from tfrl_systems.systems.learn_to_optimize.trial_log import RunLog
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.loop import EvaluateFn
from tfrl_systems.training.online import OnlineTask
from tfrl_systems.training.training_run import TrainingRun


class _Task:
    """Makes the parts of a run's `OnlineTask`; they share the function and its levels."""

    def __init__(self, run: TrainingRun) -> None:
        assert isinstance(run.problem, Resolved)
        self._run = run
        self._problem = run.problem
        self._objective = run.problem.objective
        self._settings: Settings = run.settings["environment"]
        self._judging: Judging = run.settings["judging"]
        self._num_episodes = run.settings["loop"].episodes_per_chunk
        self._levels: Levels | None = None

    def prepare(self, workdir: Workdir, reporter: Reporter) -> dict[str, int]:
        """Measure the levels once for the run, and say what will be done."""
        if self._run.how.collects == "trials":
            self._workdir, self._reporter = workdir, reporter
            return self._prepare_trials(reporter)
        measured = workdir.once(lambda: dataclasses.asdict(self.levels()))
        self._levels = Levels(**measured)
        for line in self._introduction():
            reporter.say(line)
        return {"function_evaluations": self._levels.evaluations}

    def _prepare_trials(self, reporter: Reporter) -> dict[str, int]:
        """Say what will be done; rewards, and so their scale, are not used."""
        agent, trials = self._run.settings["agent"], self._problem.trials
        logged = "" if trials is None else f"{len(trials.values):,} trials of the log, and "
        loop = self._run.settings["loop"]
        reporter.say(
            f"{self._objective.name}: {logged}{agent.evaluations:,} evaluations in "
            f"{loop.iterations:,} batches; each is written to trials.csv as soon as it is made"
        )
        return {}

    def levels(self) -> Levels:
        """Return the levels of the function; measure them if they were not."""
        if self._levels is None:
            self._levels = measure_levels(self._objective, self._settings)
        return self._levels

    def specs(self) -> tuple[Any, Any]:
        """Return the specs of time steps and actions, without calling the function."""
        plain = dataclasses.replace(self._problem, sampler="random")
        (environment,) = plain.make_environments(self._settings, levels=Levels("difference"))
        return environment.time_step_spec(), environment.action_spec()

    def make_runner(self, actor: NumpyActor) -> Callable[[], EpisodeRunner]:
        """Return what makes a worker's runner."""
        parts = (self._settings, self._num_episodes, actor, self.levels())
        return functools.partial(self._problem.make_runner, *parts)

    def make_teacher(self, actor: NumpyActor) -> Callable[[], Teacher]:
        """Return what makes a worker's teacher."""
        parts = (self._problem, self._settings, self._num_episodes, actor, self.levels())
        return functools.partial(make_teacher, *parts, self._run.settings["teaching"])

    def begin(self, agent: Any) -> None:
        """Give an agent of trials those of the log."""
        if self._problem.trials is not None:
            agent.add_log(self._problem.trials)

    def open_log(self, workdir: Workdir) -> RunLog:
        """Return the file of the run's trials."""
        objective = self._objective
        return RunLog(workdir.trials, objective.num_tuned, objective.low, objective.high)

    def make_evaluate_fn(self, agent: Any) -> EvaluateFn:
        """Return a function that judges the greedy policy."""
        free = self._judging.points(self._objective.num_free)
        actor = NumpyActor.from_policy(agent.collect_policy)
        judge_fn = self._judged
        if self._judging.judge == "model":
            judge_fn = functools.partial(self._judged_by_model, agent)

        def evaluate_fn(variables: bytes) -> Mapping[str, Any]:
            actor.load(variables)
            policy = OptimizerPolicy(actor.network.first_step(), self._objective.num_tuned)
            return judge_fn(policy, free)

        return evaluate_fn

    def _judged(self, policy: OptimizerPolicy, free: np.ndarray) -> dict[str, Any]:
        """Judge the policy's answers for c [M, k] by evaluations of the function."""
        figures = judging.judge(self._objective, policy(free), free, self._judging.judge)
        # What is averaged over iterations are numbers.
        figures.pop("regret_interval", None)
        return {**figures, "steps": float(len(free))}

    def _judged_by_model(
        self, agent: Any, policy: OptimizerPolicy, free: np.ndarray
    ) -> dict[str, Any]:
        """Judge the policy's answers for c [M, k] by the agent's model, without an evaluation.

        `cost` is the mean of the expected values, `uncertainty` of their standard deviations, and
        `unsure` the share of c where that is large. answers.csv has them for each c. `landscape` is
        a picture of what the model knows around the answers.
        """
        x = policy(free)
        rows = self._objective.join(x, free)
        expected = agent.expected(x.astype(np.float64), free)
        answers = Answers.of(self._objective, rows, expected, agent.spread)
        answers.write(self._workdir.path / "answers.csv")
        if line := answers.describe():
            self._reporter.say(line)
        landscape = Landscape.of(self._objective, policy, agent.expected)
        return {
            "cost": float(answers.expected.mean()),
            "uncertainty": float(answers.std.mean()),
            "unsure": float(answers.is_unsure.mean()),
            **({} if landscape is None else {"landscape": landscape}),
        }

    def _introduction(self) -> list[str]:
        objective, levels = self._objective, self.levels()
        sides = np.stack([objective.low, objective.high], axis=1)
        same = (sides == sides[0]).all()
        domain = ", ".join(f"[{low:g}, {high:g}]" for low, high in (sides[:1] if same else sides))
        lines = [f"{objective.name}: {'each coordinate' if same else 'coordinates'} in {domain}"]
        if levels.spread is not None:
            lines[0] += f"; values spread by {levels.spread:g} at {levels.evaluations} points"
        if levels.spread == 0:
            lines[0] += ", all the same: there is nothing to learn from"
        lines[0] += f"; reward {levels.reward}"
        num_points = len(self._judging.points(objective.num_free))
        lines.append(_plan(self._run, levels, num_points))
        if self._judging.judge == "truth":
            lines.append(judging.announcement(objective, num_points))
        return [line for line in lines if line]


def _plan(run: TrainingRun, levels: Levels, num_points: int) -> str:
    """Return how many evaluations of the function a run will take, as a line for people."""
    loop = run.settings["loop"]
    validation = f"{num_points:,} in each validation, every {loop.evaluate_every:,} iterations"
    if run.agent == "bc_max":
        return f"evaluations: as many as the teachers and descents take, and {validation}"
    steps = run.settings["environment"].episode_length + 1
    each = loop.num_chunks * loop.episodes_per_chunk * steps * (2 if run.agent == "es" else 1)
    num_validations = -(-loop.iterations // loop.evaluate_every)
    total = levels.evaluations + loop.iterations * each + num_validations * num_points
    return (
        f"evaluations: {levels.evaluations:,} to measure the scale, {each:,} in each of "
        f"{loop.iterations:,} iterations, {validation}: {total:,} in all"
    )


def online_task(run: TrainingRun) -> OnlineTask:
    """Make the task of all agents."""
    task = _Task(run)
    described, function = run.problem.describe(), run.problem.function
    # What was learned from a log alone has no function to be evaluated on.
    evaluate = f"tfrl evaluate learn_to_optimize --policy DIR --function {function}"
    return OnlineTask(
        *task.specs(),
        task.make_runner,
        task.make_evaluate_fn,
        make_teacher=task.make_teacher,
        begin=task.begin,
        make_function=run.problem.make_objective,
        open_log=task.open_log,
        prepare=task.prepare,
        about={
            **{name: value for name, value in described.items() if name != "sampler"},
            "use": [
                *([evaluate] if function else []),
                "tfrl_systems.systems.learn_to_optimize.OptimizerPolicy.load(DIR)(c)",
                "tf.saved_model.load(DIR)",
            ],
        },
    )
