"""The Python API: each verb of `tfrl` as a function that returns what `--json` prints.

    from tfrl_systems import experiments

    run = experiments.train("tensor_graphs", agent="ppo", models=["bert-tiny"], workdir="runs/tiny")
    print(run.result["evaluation"], run.policy)
    experiments.evaluate("tensor_graphs", policies=[run.policy, "taso"], models=["bert-mini"])
    experiments.replay("trajectories", corpus="runs/mine")
    experiments.optimize("model.onnx", "fast.onnx", policy=run.policy)
    faster = experiments.optimize(model)["optimized"]  # an onnx.ModelProto

`systems/` holds the record of each system, which says what can be asked of it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments.machine import num_processors
from tfrl_systems.experiments.records import find_system, implementation_of, system_names
from tfrl_systems.reporting import Reporter, Terminal
from tfrl_systems.settings import as_options, later_defaults, make
from tfrl_systems.training.system import System
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    import onnx
    from tf_agents.trajectories.trajectory import Trajectory

    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.world_models.dream import DreamEnvironment

__all__ = [
    "Reporter",
    "Run",
    "System",
    "Terminal",
    "TrainingRun",
    "bench",
    "build",
    "dream",
    "evaluate",
    "find_system",
    "optimize",
    "plan",
    "replay",
    "system_names",
    "train",
]

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished training run.

    Attributes:
      plan: what was trained.
      workdir: directory of the run.
      result: contents of `workdir`/result.json.
    """

    plan: TrainingRun
    workdir: pathlib.Path
    result: Mapping[str, Any]

    @property
    def policy(self) -> pathlib.Path:
        """The directory of the learned policy."""
        return self.workdir / "policy"


def plan(
    system: str,
    *,
    agent: str,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    **problem: Any,
) -> TrainingRun:
    """Return what `train` would train with the same arguments, without training it.

    Raises:
      UsageError: there is no such system, agent, setting or field.
      UserError: an argument cannot be used.
    """
    return find_system(system).plan(agent, seed, settings or {}, problem)


def train(
    system: str,
    *,
    agent: str,
    workdir: PathLike,
    seed: int = 0,
    iterations: int | None = None,
    settings: Mapping[str, Any] | None = None,
    collect: Collect | None = None,
    resume: bool = False,
    reporter: Reporter | None = None,
    **problem: Any,
) -> Run:
    """Learn a policy.

    Args:
      system: name of the system.
      agent: name of the agent.
      workdir: directory of the run: policy, curves, checkpoints, result.json.
      seed: seed of everything random.
      iterations: rounds of collecting and learning; None for the system's usual number.
      settings: values that replace the system's usual settings, by name of the field; see
        `tfrl train SYSTEM --agent AGENT --help`.
      collect: where experience is collected; the outcome does not depend on it.
      resume: whether to go on with the run in `workdir`, if there is one.
      reporter: receives the progress; by default it prints a line on stderr now and then.
        `Reporter()` is silent, `Terminal` shows bars.
      **problem: fields of the system's `problem_type`.

    Returns:
      The run. If `resume` finds a finished run, that run is returned unchanged.

    Raises:
      UsageError: there is no such system, agent, setting or field.
      UserError: an argument cannot be used, or nothing can be learned.
    """
    from tfrl_systems.drivers.collect import Collect, shared
    from tfrl_systems.training.checkpoints import open_workdir

    reporter = reporter or Terminal()
    values = dict(settings or {}) | ({} if iterations is None else {"iterations": iterations})
    record = find_system(system)
    run = plan(system, agent=agent, seed=seed, settings=values, **problem)
    collect = collect or Collect.with_workers(num_processors() if record.collects_by_workers else 1)
    directory = pathlib.Path(workdir)
    identity = run.identity(record.describe(run))
    with open_workdir(directory, identity, later_defaults(run.settings), resume=resume) as opened:
        result = opened.result()
        if result is not None and result["iterations"] == run.settings["loop"].iterations:
            reporter.say(f"{workdir}: already finished")
        else:
            # A run has several pools, one after another or side by side.
            with shared(collect):
                result = record.train(run, opened, collect, reporter)
    return Run(run, directory, result)


def dream(run: Run, *, seed: int = 0) -> tuple[Trajectory, DreamEnvironment]:
    """Play new real episodes; return them, and dreams that begin as they do.

    Give the dreams the real actions, and compare the rewards; or let a policy of your own act.

    Args:
      run: a run of the agent world_model.
      seed: seed of the real episodes and of the dreams.

    Returns:
      Episodes [B, T], arrays, played by the run's last policy as it explores; B is the run's
      `episodes_per_chunk`. The world model has not seen them. And an environment whose dreams each
      begin where one of these episodes began.

    Raises:
      UsageError: the run's agent has no world model.
      UserError: the run's last checkpoint is damaged.
    """
    from tfrl_systems.experiments import dreaming

    return dreaming.dream(run.plan, run.workdir, seed)


def evaluate(
    system: str,
    *,
    policies: Sequence[PathLike],
    seed: int = 0,
    reporter: Reporter | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Measure policies, and return what `tfrl evaluate --json` prints.

    Policies are directories, or names that the system knows. The fields are those of the system's
    `evaluation_type`, or of its `problem_type` if it has none. For the rest see `train`.

    Raises:
      UsageError: there is no such system or field.
      UserError: there is no such policy, or an argument cannot be used.
    """
    record = find_system(system)
    request: Any = make(record.evaluation_type or record.problem_type, fields)
    names = [os.fspath(policy) for policy in policies]
    return record.evaluate(names, request, seed, reporter or Terminal())


def replay(
    trajectories: Sequence[PathLike] | PathLike,
    *,
    reporter: Reporter | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """Play saved trajectories again, and rank those that are equal.

    They are a file, or files and directories of them. The overrides replace settings of those that
    have them, such as corpus.

    Returns:
      What `tfrl replay --json` prints: of each trajectory whether it is "equal", else its first
      "difference", and its "rank" among the equal ones of its environment and context.

    Raises:
      UserError: there is no such file, or no trajectory has such a setting.
    """
    from tfrl_systems.experiments import replaying

    if isinstance(trajectories, str | os.PathLike):
        trajectories = [trajectories]
    return replaying.replay(
        list(map(pathlib.Path, trajectories)), overrides, reporter or Terminal()
    )


def bench(system: str, *, reporter: Reporter | None = None, **fields: Any) -> dict[str, Any]:
    """Measure the time and memory of a system's operations, beside alternatives.

    Return what `tfrl bench --json` prints. The fields are those of the system's `bench_type`.

    Raises:
      UsageError: there is no such system or field, or the system has no benchmarks.
    """
    record = find_system(system)
    request: Any = make(record.bench_type, fields) if record.bench_type is not None else None
    result = record.bench(request, reporter or Terminal())
    command = shlex.join(["tfrl", "bench", system, *as_options(request)])
    for benchmark in result["benchmarks"]:
        benchmark["command"] = command
    return result


def build(
    command: Sequence[str],
    *,
    policy: PathLike | None = None,
    reporter: Reporter | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Run a build, such as make, with a policy in its clangs.

    The policy is a directory or a name; without one it is that of the installation. The fields are
    those of `systems.inlining.building.steered_build.Build`.

    Returns:
      What `tfrl build --json` prints. Its "status" is the command's.

    Raises:
      UsageError: there is no such field, or no command.
      UserError: there is no such policy or compiler, or the command does not start.
    """
    building = implementation_of("build")
    values = {**fields, "command": command}
    if policy is not None:
        values["policy"] = os.fspath(policy)
    report: dict[str, Any] = building.build(make(building.Build, values), reporter or Terminal())
    return report


def optimize(
    model: PathLike | onnx.ModelProto,
    output: PathLike | None = None,
    *,
    reporter: Reporter | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make a faster ONNX model that computes the same; if there is none, a copy.

    By default MODEL.optimized.onnx beside the model is written, and nothing if `model` is no file.
    The fields are those of `systems.tensor_graphs.optimize.request.Optimization`.

    Returns:
      What `tfrl optimize --json` prints. Its "reason" says why the output is a copy. If `model` is
      no file, "optimized" is the faster model, an `onnx.ModelProto`. A notebook shows it as the
      page of `tfrl optimize --report`: what was won, by which rules, both graphs.

    Raises:
      UsageError: there is no such field, or two fields contradict each other.
      UserError: a file cannot be read or written, or an argument cannot be used.
    """
    from tfrl_systems.systems.tensor_graphs.optimize import optimization, page, request

    reporter = reporter or Terminal()
    if not isinstance(model, str | os.PathLike):
        target = None if output is None else pathlib.Path(output)
        return optimization.optimize_in_memory(model, target, fields, reporter)
    paths = {"model": os.fspath(model), "output": None if output is None else os.fspath(output)}
    return page.Report(
        optimization.optimize(make(request.Optimization, {**fields, **paths}), reporter)
    )
