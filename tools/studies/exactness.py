"""Whether steering the compiler is exact: pairs of objects that must be equal."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np

from environments.errors import Failure
from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.collection.playing import compile_under
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import ModuleStore, Play
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Policy, Replay, make_heuristic
from environments.inlining.plugin.compiler import PluginClang
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.experiments.settings import option
from tfrl_systems.experiments.systems.inlining.policies import load_policy
from tfrl_systems.experiments.systems.inlining.workers import make_collector
from tools.studies.study import Record, Study, Table, Trial, first

PAIRS = ("default_is_plain", "replay_is_recorded", "plugin_is_channel")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exactness:
    """What is compiled.

    Attributes:
      corpus: directory of the modules.
      compilers: "embedded" or a clang; may be repeated.
      policy: a policy's directory or name, for the pair of plugin and channel.
      max_bitcode_bytes: leave larger modules out; 0 for none.
      modules: the first so many only; 0 for all.
      workers: compilers that run at the same time.
    """

    corpus: pathlib.Path = option(metavar="DIR")
    compilers: tuple[str, ...] = option(("embedded",), flag="--compiler", metavar="NAME")
    policy: str = option("cost<-20", metavar="DIR|NAME")
    max_bitcode_bytes: int = option(0, metavar="N", minimum=0)
    modules: int = option(0, metavar="N", minimum=0)
    workers: int = option(2, metavar="N", minimum=1)


def _trials(options: Exactness) -> Iterator[Trial]:
    about = {**dataclasses.asdict(options), "corpus": str(options.corpus)}
    for compiler in options.compilers:
        yield Trial(pathlib.PurePath(compiler).name, {**about, "compiler": compiler})


@dataclasses.dataclass(frozen=True)
class Check:
    """A `tasks.Task` that compiles one module in several ways, and keeps nothing in the store.

    Attributes:
      policy: decides in the last pair.
    """

    policy: Policy

    def recall(self, module_store: ModuleStore) -> None:
        """Return None, because nothing is kept."""

    def run(self, compiler: Compiler, module: Module) -> dict[str, bool | int]:
        """Return the number of decisions, and whether the objects of each pair are equal."""
        default = Play(make_heuristic("default")).run(compiler, module)
        plain = compiler.compile_plain(module).size
        # Random decisions at all call sites would make the largest modules compile for hours.
        changed = default.decisions.copy()
        changed[::10] ^= 1
        recorded = Play(Replay(changed)).run(compiler, module)
        replayed = Play(Replay(recorded.decisions)).run(compiler, module)
        return {
            "decisions": len(default.decisions),
            "default_is_plain": default.size == plain,
            "replay_is_recorded": replayed.size == recorded.size,
            "plugin_is_channel": self._plugin_is_channel(compiler, module),
        }

    def _plugin_is_channel(self, compiler: Compiler, module: Module) -> bool:
        if not isinstance(compiler, PluginClang):
            return True
        inside = compile_under(self.policy, compiler, module)
        names = inside.trajectory.names
        with CompileEpisode(compiler, module) as episode:
            outside = episode.play(self.policy.begin(module.name, names))
            data = episode.compilation.result().data
        return (
            np.array_equal(inside.trajectory.features, outside.features)
            and np.array_equal(inside.trajectory.decisions, outside.decisions)
            and inside.data == data
        )

    def keep(self, module_store: ModuleStore, result: dict[str, bool | int]) -> None:
        """Keep nothing."""


def measure(about: Record, _: pathlib.Path) -> Record:
    """Check all modules with one compiler."""
    modules = [
        module
        for module in Corpus.load(pathlib.Path(about["corpus"])).modules
        if not 0 < about["max_bitcode_bytes"] < module.path.stat().st_size
    ][: about["modules"] or None]
    collect = Collect.with_workers(about["workers"])
    with make_collector(about["compiler"], TrajectoryStore(), collect) as collector:
        outcomes = collector.map(Check(load_policy(about["policy"])), modules, lambda _: None)
    checked = [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
    return {
        "num_modules": len(modules),
        "decisions": sum(int(outcome["decisions"]) for outcome in checked),
        **{pair: sum(outcome[pair] for outcome in checked) for pair in PAIRS},
        "differing": [
            module.name
            for module, outcome in zip(modules, outcomes, strict=True)
            if not isinstance(outcome, Failure) and not all(outcome[pair] for pair in PAIRS)
        ],
        "failures": [outcome.message for outcome in outcomes if isinstance(outcome, Failure)],
    }


EXACTNESS = Study(
    """Whether steering the compiler is exact: pairs of objects that must be equal.

Of each module: one compiled under the default's decisions, and one by a plain -Oz (which can differ
if inlining left call sites in unreachable code; savings are measured against the plain one); one
with every tenth of those decisions changed, and a replay of its record; and, if plugins can be
built for the compiler, one with --policy inside it, and one steered by its channel.""",
    Exactness,
    _trials,
    measure,
    [
        Table(
            "Modules whose pair of objects is equal.",
            ("compiler",),
            {
                "modules": first("num_modules", "{:,}"),
                "decisions": first("decisions", "{:,}"),
                **{pair.replace("_", " "): first(pair, "{:,}") for pair in PAIRS},
            },
            label="compiler",
        )
    ],
    is_wrong=lambda record: bool(record["differing"] or record["failures"]),
)
