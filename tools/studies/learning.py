"""Trains and measures the policies of studies by the Python API."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.experiments.arguments import read_assignments
from tfrl_systems.settings import option
from tools.studies.study import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What most studies can be asked for.

    Attributes:
      agents: an agent to try; may be repeated.
      seeds: how many seeds: 0, 1, …
      iterations: rounds of collecting and learning; by default the usual number.
      settings: FIELD=VALUE as for tfrl train, of fields that all agents have; may be repeated.
    """

    agents: tuple[str, ...] = option((), flag="--agent", metavar="NAME")
    seeds: int = option(5, metavar="N", minimum=1)
    iterations: int | None = option(None, metavar="N", minimum=1)
    settings: tuple[str, ...] = option((), flag="--set", metavar="FIELD=VALUE")

    @property
    def assigned(self) -> dict[str, str]:
        """The values of --set by field."""
        return read_assignments(self.settings)


def train(about: Record, workdir: pathlib.Path, **problem: Any) -> experiments.Run:
    """Train what a trial is about, or go on with it.

    Args:
      about: `system`, `agent`, `seed`, and perhaps `iterations` and `settings`.
      workdir: directory of the run.
      **problem: fields of the system's problem.
    """
    return experiments.train(
        about["system"],
        agent=about["agent"],
        workdir=workdir,
        seed=about["seed"],
        iterations=about.get("iterations"),
        settings=about.get("settings", {}),
        resume=True,
        reporter=experiments.Reporter(),
        **problem,
    )


def digest_of(policy: str) -> str:
    """Return a hash of the files of a policy's directory; "" for the name of one."""
    directory = pathlib.Path(policy.removeprefix("regions:"))
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    if not paths:
        return ""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def known_settings(system: str, agent: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some settings that an agent has on a system."""
    groups = experiments.find_system(system).settings(agent, None).values()
    names = {field.name for group in groups for field in dataclasses.fields(group)}
    return {name: value for name, value in settings.items() if name in names}


def trained(about: Record, workdir: pathlib.Path, **problem: Any) -> tuple[str, dict[str, Any]]:
    """Return the policy that a trial learns, and what every table of trainings shows of it."""
    began_s = time.monotonic()
    run = train(about, workdir, **problem)
    result, evaluation = run.result, run.result["evaluation"]
    evaluations = evaluation["iterations"]
    return str(run.policy), {
        "learning_s": time.monotonic() - began_s,
        "steps": result["environment_steps"],
        "evaluations": result.get("function_evaluations"),
        "policy_sha256": result["policy_sha256"],
        "last": _numbers(evaluation.get("last", evaluations[-1])),
        "last_tenth": _numbers(evaluation.get("last_tenth", {})),
        "curve": [_numbers(row) for row in evaluations],
    }


def _numbers(evaluation: Mapping[str, Any]) -> dict[str, float]:
    return {name: number for name, number in evaluation.items() if isinstance(number, int | float)}


def evaluate(system: str, policies: Sequence[str], seed: int, **problem: Any) -> dict[str, Any]:
    """Return what `tfrl evaluate --json` prints."""
    return experiments.evaluate(
        system, policies=policies, seed=seed, reporter=experiments.Reporter(), **problem
    )
