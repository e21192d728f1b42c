"""The record of one system, which `train`, `evaluate` and `bench` work from.

A system is a module or package in `systems/` whose attribute `SYSTEM` is its record.
`System` implements what is the same for all systems. A record needs at least a name, a problem
type, and a function that makes an environment from a problem.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments.errors import UsageError
from tfrl_systems.agents.table import Agent, find_agent
from tfrl_systems.reporting import Reporter, format_table
from tfrl_systems.settings import Settings, make, with_seed, with_values
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.checkpoints import Workdir
    from tfrl_systems.training.online import OnlineTask

GRAPH_SETTINGS = ("graph_width", "graph_rounds", "graph_block", "head", "max_logit", "two_policies")
"""Settings of agents that need observations of graphs."""
FLOAT_SETTINGS = (
    *("action_std", "search_action_std", "final_action_std", "state_dependent_std"),
    "components",
    *("num_waves", "magnify"),
)
"""Settings of agents that need float actions."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What `tfrl doctor` says of one thing that it has tried.

    Attributes:
      name: the thing that was tried.
      works: whether it works.
      needed: whether the project needs it to work.
      found: what the check found.
      remedy: what the user should do; "" if nothing.
    """

    name: str
    works: bool
    needed: bool
    found: str
    remedy: str = ""


class System:
    """One system. To add one, subclass this and assign an instance of the subclass to `SYSTEM`.

    Attributes:
      name: the system's name, as users write it; the same as its module's name. The first line of
        the module's docstring is this name, a colon, and a few words that say what the system is.
      problem_type: a frozen dataclass that describes what to decide on. Its fields are the keyword
        arguments of `experiments.train` and the options of `tfrl train`.
      evaluation_type: the same for `evaluate`; None to use `problem_type`.
      bench_type: the same for `bench`; None if the system has no benchmarks.
      policies: the policies that users can name, each with a line that says what it does.
      default_policy: the one of them that verbs use if none is named; "" if one must be named.
      examples: the help text of each verb: what the verb does, with example commands.
      own_agents: agents that learn in another way here than in other systems, by name.
      refused: agents that do not fit, each with the reason: "expected …, found …, …".
      unused_settings: settings of agents that its specs leave without effect; help texts do not
        show them.
      export_formats: the forms in which `export` writes policies.
      result_fields: names in an environment's `get_info`, with units: what an episode came to, and
        what to compare that with.
      verbs: the modules that implement verbs of `tfrl` which no other system has.
      collects_by_workers: whether one worker per processor collects by default; if not, this
        process collects. Set it for systems whose steps take milliseconds.
    """

    name: str
    problem_type: type
    evaluation_type: type | None = None
    bench_type: type | None = None
    policies: Mapping[str, str] = {"random": "actions by chance"}
    default_policy: str = ""
    examples: Mapping[str, str] = {}
    own_agents: Mapping[str, Agent] = {}
    refused: Mapping[str, str] = {}
    unused_settings: Collection[str] = ()
    export_formats: Sequence[str] = ()
    result_fields: Sequence[str] = ()
    verbs: Mapping[str, str] = {}
    collects_by_workers: bool = False

    def why_not(self, agent: str) -> str:
        """Return why an agent cannot learn in this system, as an error says it; "" if it can.

        Raises:
          UsageError: there is no agent of that name.
        """
        find_agent(agent)
        return self.refused.get(agent, "")

    def agent(self, name: str) -> Agent:
        """Return how an agent learns in this system.

        Raises:
          UsageError: there is no agent of that name.
        """
        return self.own_agents.get(name) or find_agent(name)

    def settings(self, agent: str, problem: Any) -> Settings:
        """Return the settings that suit an agent in this system, by group.

        There are the groups "loop" and "agent", and any others that the system has. For help texts
        the problem is None.
        """
        method = self.agent(agent)
        return {"loop": method.make_loop_config(), "agent": method.make_config()}

    def plan(
        self, agent: str, seed: int, settings: Mapping[str, Any], problem: Mapping[str, Any]
    ) -> TrainingRun:
        """Return what `experiments.train` would train; see `experiments.plan`."""
        if reason := self.why_not(agent):
            raise UsageError(f"{self.name}: {reason}")
        chosen: Any = make(self.problem_type, problem)
        how = self.agent(agent)
        groups = with_values(self.settings(agent, chosen), how.expanded(settings))
        run = TrainingRun(self.name, agent, chosen, with_seed(groups, seed), seed, how)
        return self.complete(run)

    def complete(self, run: TrainingRun) -> TrainingRun:
        """Return the same run with the settings filled in that depend on the problem.

        Raises:
          UserError: the problem or a setting cannot be used.
        """
        return run

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """Return what identifies the problem, as JSON values."""
        described: dict[str, Any] = dataclasses.asdict(run.problem)
        return described

    def make_environment(self, problem: Any, settings: Settings) -> Any:
        """Make a TF-Agents `PyEnvironment` for the problem; the methods below need only this one.

        Raises:
          UserError: the problem or a setting cannot be used.
        """
        raise NotImplementedError

    @contextlib.contextmanager
    def online_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[OnlineTask]:
        """Give an `online.OnlineTask`, and release its resources at the end."""
        from tfrl_systems.training import playing

        yield playing.online_task(self, run)

    def train(
        self, run: TrainingRun, workdir: Workdir, collect: Collect, reporter: Reporter
    ) -> dict[str, Any]:
        """Train, or go on with the run in `workdir`; return the contents of result.json."""
        from tfrl_systems.training import online

        with self.online_task(run, collect, reporter) as task:
            return online.train(run, task, workdir, collect, reporter)

    def evaluate(
        self, policies: Sequence[str], settings: Any, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """Measure policies, and return what `tfrl evaluate --json` prints.

        Policies are directories that training wrote, or names in `policies`; the settings are an
        `evaluation_type`.

        Raises:
          UserError: there is no such policy, or `settings` cannot be used.
        """
        from tfrl_systems.training import playing

        return playing.evaluate(self, policies, settings, seed, reporter)

    def bench(self, settings: Any, reporter: Reporter) -> dict[str, Any]:
        """Measure what a `bench_type` says, and return what `tfrl bench --json` prints."""
        raise UsageError(f"bench: there is nothing to measure of {self.name}")

    def export(
        self, policy: str, form: str, compiler: str | None, output: pathlib.Path
    ) -> tuple[dict[str, Any], str]:
        """Write a policy in the form in which others use it.

        Args:
          policy: a directory that training wrote, or a name in `policies`.
          form: one of `export_formats`.
          compiler: the compiler that it is for; None for the form's usual one, if it needs any.
          output: the file or directory to write.

        Returns:
          What `tfrl export --json` prints, and how to use what was written.

        Raises:
          UserError: there is no such policy, it does not fit the form, or nothing can be written.
        """
        raise NotImplementedError

    def checks(self) -> list[Check]:
        """Try what the system needs on this machine, for `tfrl doctor`."""
        return []

    def outcome(self, result: Mapping[str, Any]) -> tuple[str, str]:
        """Return what a run's result.json says of its policy, for people: a name and a value.

        The name is "" if there is nothing to say.
        """
        late = result["evaluation"].get("last_tenth", {})
        figures = ", ".join(f"{name} {value:.4g}" for name, value in late.items())
        return "evaluation", f"{figures} (mean over the last tenth of the iterations)"

    def next_command(self, policy: pathlib.Path, problem: Any) -> str:
        """Return the command to try next with a policy that was trained on a problem."""
        return f"tfrl evaluate {self.name} --policy {policy}"

    def table(self, evaluation: Mapping[str, Any]) -> str:
        """Format what `evaluate` returned, for people: tables that compare the policies."""
        policies = evaluation["policies"]
        names = [name for name in policies[0] if name != "policy"]
        rows = [[row["policy"], *(f"{row[name]:.4g}" for name in names)] for row in policies]
        return format_table(["policy", *names], rows)
