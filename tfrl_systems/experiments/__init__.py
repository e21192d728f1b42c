"""The Python API: what the verbs of `tfrl` do, as functions that return what `--json` prints.

    from tfrl_systems import experiments

    run = experiments.train("tensor_graphs", agent="ppo", models=["bert-tiny"], workdir="runs/tiny")
    print(run.result["evaluation"], run.policy)
    experiments.evaluate("tensor_graphs", policies=[run.policy, "taso"], models=["bert-mini"])
    experiments.optimize("model.onnx", "fast.onnx", policy=run.policy)

The systems, with what can be asked of them, are `systems/`; each has its record there.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments.errors import UsageError
from tfrl_systems.experiments.agents import find_agent
from tfrl_systems.experiments.reporting import Reporter, Terminal
from tfrl_systems.experiments.settings import as_options, make, with_seed, with_values
from tfrl_systems.experiments.system import System, find_system, system_names
from tfrl_systems.experiments.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect

__all__ = [
    "Reporter",
    "Run",
    "System",
    "Terminal",
    "TrainingRun",
    "bench",
    "evaluate",
    "find_system",
    "optimize",
    "plan",
    "system_names",
    "train",
]

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished training run.

    Attributes:
      workdir: where it is kept.
      result: what DIR/result.json holds.
    """

    workdir: pathlib.Path
    result: Mapping[str, Any]

    @property
    def policy(self) -> pathlib.Path:
        """The directory of the policy that was learned."""
        return self.workdir / "policy"


def plan(
    system: str,
    *,
    agent: str,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    **problem: Any,
) -> TrainingRun:
    """What `train` would train, without training it.

    Args:
      system: name of the system.
      agent: name of the agent.
      seed: of everything.
      settings: values in place of those that are right for the system, by name of the field; see
        `tfrl train SYSTEM --help`.
      **problem: fields of the system's `problem_type`.

    Raises:
      UsageError: there is no such system, agent, setting or field.
      UserError: what is given cannot be used.
    """
    record = find_system(system)
    if not (find_agent(agent).is_online or record.has_trajectories):
        raise UsageError(
            f"{system}: expected an agent that learns online, found {agent}, which imitates "
            "trajectories of other policies; take another, such as ppo"
        )
    asked: Any = make(record.problem_type, problem)
    chosen = with_values(record.settings(agent, asked), settings or {})
    return record.complete(TrainingRun(system, agent, asked, with_seed(chosen, seed), seed))


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
    """Learns a policy.

    Args:
      system: name of the system.
      agent: name of the agent.
      workdir: directory of the run: policy, curves, checkpoints, result.json.
      seed: of everything.
      iterations: rounds of collecting and learning; what is right for the system if not given.
      settings: values in place of those that are right for the system, by name of the field; see
        `tfrl train SYSTEM --help`.
      collect: where experience is collected; the outcome does not depend on it.
      resume: go on with the run in `workdir`, if there is one.
      reporter: told of the progress; by default a line on stderr now and then. `Reporter()` is
        silent, `Terminal` shows bars.
      **problem: fields of the system's `problem_type`.

    Returns:
      The run. A finished one that is resumed is returned as it is.

    Raises:
      UsageError: there is no such system, agent, setting or field.
      UserError: what is given cannot be used, or nothing can be learned.
    """
    from tfrl_systems.training.checkpoints import open_workdir

    teller = reporter or Terminal()
    given = dict(settings or {}) | ({} if iterations is None else {"iterations": iterations})
    record = find_system(system)
    run = plan(system, agent=agent, seed=seed, settings=given, **problem)
    place = pathlib.Path(workdir)
    with open_workdir(place, run.identity(record.describe(run)), resume=resume) as opened:
        result = opened.result()
        if result is not None and result["iterations"] == run.settings["loop"].iterations:
            teller.say(f"{workdir}: already finished")
        else:
            result = _train(record, run, opened, collect or default_collect(record), teller)
    return Run(place, result)


def _train(
    record: System, run: TrainingRun, workdir: Any, collect: Collect, reporter: Reporter
) -> dict[str, Any]:
    if find_agent(run.agent).is_online:
        from tfrl_systems.experiments import online

        with record.online_task(run, collect, reporter) as task:
            return online.train(run, task, workdir, collect, reporter)
    from tfrl_systems.experiments import imitation

    with record.imitation_task(run, collect, reporter) as offline:
        return imitation.train(run, offline, workdir, reporter)


def default_collect(record: System) -> Collect:
    """Where experience of a system is collected if nobody says."""
    from tfrl_systems.drivers.collect import Collect, num_processors

    return Collect.with_workers(num_processors() if record.collects_by_workers else 1)


def evaluate(
    system: str,
    *,
    policies: Sequence[PathLike],
    seed: int = 0,
    reporter: Reporter | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Measures policies.

    Args:
      system: name of the system.
      policies: directories of policies, or names that the system knows.
      seed: of what is left to chance.
      reporter: told of the progress; by default a line on stderr now and then. `Reporter()` is
        silent, `Terminal` shows bars.
      **asked: fields of the system's `evaluation_type`, or of its problem.

    Returns:
      What `tfrl evaluate --json` prints.

    Raises:
      UsageError: there is no such system or field.
      UserError: there is no such policy, or what is given cannot be used.
    """
    record = find_system(system)
    chosen: Any = make(record.evaluation_type or record.problem_type, asked)
    names = [os.fspath(policy) for policy in policies]
    return record.evaluate(names, chosen, seed, reporter or Terminal())


def bench(system: str, *, reporter: Reporter | None = None, **asked: Any) -> dict[str, Any]:
    """Measures what things cost, side by side.

    Args:
      system: name of the system.
      reporter: told of the progress; by default a line on stderr now and then. `Reporter()` is
        silent, `Terminal` shows bars.
      **asked: fields of the system's `bench_type`.

    Returns:
      What `tfrl bench --json` prints.

    Raises:
      UsageError: there is no such system or field, or nothing to measure.
    """
    record = find_system(system)
    chosen: Any = make(record.bench_type, asked) if record.bench_type is not None else None
    found = record.bench(chosen, reporter or Terminal())
    command = shlex.join(["tfrl", "bench", system, *as_options(chosen)])
    for one in found["benchmarks"]:
        one["command"] = command
    return found


def optimize(
    model: PathLike, output: PathLike, *, reporter: Reporter | None = None, **asked: Any
) -> dict[str, Any]:
    """Writes a faster ONNX model that computes the same, or a copy and why.

    Args:
      model: the ONNX file.
      output: where the model goes.
      reporter: told of the progress; by default a line on stderr now and then. `Reporter()` is
        silent, `Terminal` shows bars.
      **asked: fields of `systems.tensor_graphs.optimizing.Optimization`.

    Returns:
      What `tfrl optimize --json` prints.

    Raises:
      UsageError: there is no such field, or they do not go together.
      UserError: a file cannot be read or written, or what is given cannot be used.
    """
    from tfrl_systems.experiments.systems.tensor_graphs import optimizing

    asked = {**asked, "model": os.fspath(model), "output": os.fspath(output)}
    if asked.get("policy") is not None:
        asked.setdefault("method", "policy")
    chosen = make(optimizing.Optimization, asked)
    return optimizing.optimize(chosen, reporter or Terminal()).to_json()
