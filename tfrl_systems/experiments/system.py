"""What the toolkit knows of one system: the record that `train`, `evaluate` and `bench` work from.

A system is a module or package of `experiments/systems/` that has its record as `SYSTEM`. What is
the same for all systems stands here, so a record says no more than what is its own: at the least
its name, its problem, and how an environment is made of that.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments.errors import UsageError
from tfrl_systems.experiments.agents import find_agent
from tfrl_systems.experiments.reporting import Reporter
from tfrl_systems.experiments.settings import Settings
from tfrl_systems.experiments.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.experiments.imitation import ImitationTask
    from tfrl_systems.experiments.online import OnlineTask

_SYSTEMS = "tfrl_systems.experiments.systems"


class System:
    """One system. Subclass it, and make `SYSTEM` of the subclass.

    Attributes:
      name: as users write it, that of the module. The first line of the module's docstring says in
        a few words, behind the name and a colon, what it is.
      problem_type: a frozen dataclass: what is decided on. Its fields are the keyword arguments of
        `experiments.train` and the options of `tfrl train`.
      evaluation_type: the same for `evaluate`; by default the problem.
      bench_type: the same for `bench`; None where there is nothing to measure.
      policies: policies that are known by name, with what they do.
      examples: for help texts, by verb: what it does and how it is called.
      has_trajectories: whether `imitation_task` has some to imitate.
      collects_by_workers: whether as many workers as there are processors collect, unless the user
        says otherwise; else this process does. Right where a step takes milliseconds.
    """

    name: str
    problem_type: type
    evaluation_type: type | None = None
    bench_type: type | None = None
    policies: Mapping[str, str] = {"random": "actions by chance"}
    examples: Mapping[str, str] = {}
    has_trajectories: bool = False
    collects_by_workers: bool = False

    def settings(self, agent: str, problem: Any) -> Settings:
        """The settings that are right for an agent here: "loop", "agent", and others by name.

        Args:
          agent: a name of `AGENTS`.
          problem: that it is to learn on; None for help texts.
        """
        found = find_agent(agent)
        return {"loop": found.make_loop_config(), "agent": found.make_config()}

    def complete(self, run: TrainingRun) -> TrainingRun:
        """The same run with settings that depend on the problem worked out.

        Raises:
          UserError: the problem or a setting cannot be used.
        """
        return run

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """What identifies the problem, as JSON values."""
        described: dict[str, Any] = dataclasses.asdict(run.problem)
        return described

    def make_environment(self, problem: Any, settings: Settings) -> Any:
        """An environment of the problem, a TF-Agents `PyEnvironment`; what the defaults here need.

        Raises:
          UserError: the problem or a setting cannot be used.
        """
        raise NotImplementedError

    @contextlib.contextmanager
    def online_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[OnlineTask]:
        """An `online.OnlineTask`; what it needs is let go of in the end."""
        from tfrl_systems.experiments import playing

        yield playing.online_task(self, run)

    @contextlib.contextmanager
    def imitation_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[ImitationTask]:
        """An `imitation.ImitationTask`; for systems that have trajectories to imitate."""
        raise NotImplementedError

    def evaluate(
        self, policies: Sequence[str], asked: Any, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """Measures policies.

        Args:
          policies: directories that training wrote, or names of `policies`.
          asked: an `evaluation_type`.
          seed: of what is left to chance.
          reporter: told how far it has come.

        Returns:
          What `tfrl evaluate --json` prints.

        Raises:
          UserError: there is no such policy, or what is asked for cannot be used.
        """
        from tfrl_systems.experiments import playing

        return playing.evaluate(self, policies, asked, seed, reporter)

    def bench(self, asked: Any, reporter: Reporter) -> dict[str, Any]:
        """Measures what things cost.

        Args:
          asked: a `bench_type`.
          reporter: told how far it has come.

        Returns:
          What `tfrl bench --json` prints.
        """
        raise UsageError(f"bench: there is nothing to measure of {self.name}")


@functools.cache
def system_names() -> tuple[str, ...]:
    """The systems that there are."""
    package = importlib.import_module(_SYSTEMS)
    return tuple(sorted(one.name for one in pkgutil.iter_modules(package.__path__)))


def summary_of(name: str) -> str:
    """What a system is, in a few words; nothing is imported for it."""
    spec = importlib.util.find_spec(f"{_SYSTEMS}.{name}")
    assert spec is not None and spec.origin is not None
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or name).splitlines()[0]
    return first.partition(": ")[2].rstrip(".") or first


def find_system(name: str) -> System:
    """The record of a system.

    Raises:
      UsageError: there is none of that name.
    """
    if name not in system_names():
        raise UsageError(f"system: expected one of {', '.join(system_names())}; found {name!r}")
    system: System = importlib.import_module(f"{_SYSTEMS}.{name}").SYSTEM
    return system
