"""What the campaign runs: real commands of tfrl, each of seconds, and what their end is."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from environments import files

TFRL = (sys.executable, "-P", "-m", "tfrl_systems.cli.main")
_SAME = ("experience_sha256", "policy_sha256", "environment_steps")

_KILLED = ("kill", "interrupt", "terminate")
ANY_WORKER = (
    *("kill_worker", "segfault_worker", "hang_worker", "stop_worker", "slow_pipe"),
    "out_of_memory",
)
ANY_HEAD = (*_KILLED, "pause", "truncate_file", "flip_bit", "disk_full", "clock_jump")
WITH_RAY = (*ANY_HEAD, "vanish_node")
# Longer than a stop, and than a chunk on a busy machine.
_CHUNK_TIMEOUT_S = 15


@dataclasses.dataclass(frozen=True)
class Place:
    """The directories of one run, all below one; `inputs` is shared by all runs, and only read.

    Attributes:
      root: the directory.
      inputs: what `Scenario.prepare` made.
    """

    root: pathlib.Path
    inputs: pathlib.Path

    @property
    def work(self) -> pathlib.Path:
        """Where the command's output goes."""
        return self.root / "w"

    @property
    def temporary(self) -> pathlib.Path:
        """What TMPDIR leads to."""
        return self.root / "t"

    @property
    def cache(self) -> pathlib.Path:
        """XDG_CACHE_HOME."""
        return self.root / "c"

    @property
    def home(self) -> pathlib.Path:
        """HOME."""
        return self.root / "h"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command, what may be broken in it, and what must come of it all the same.

    Attributes:
      name: what the campaign calls it.
      prepare: makes its inputs in a directory.
      begin: puts what the command changes into the place of a run.
      command: the command's arguments, for a place.
      end: what the finished command left, as digests by name.
      targets: roles of processes (`processes.py`) -> kinds of faults that strike them.
      head_faults: kinds of faults that strike the command itself, or what it wrote.
      gaps: mean time from one fault of a worker to the next, as a share of the quiet run's.
      resume: what is added to the command when it goes on.
      signals_group: whether signals go to the command's whole group, as a terminal sends them.
    """

    name: str
    prepare: Callable[[pathlib.Path], None]
    command: Callable[[Place], list[str]]
    end: Callable[[Place], Mapping[str, Any]]
    targets: Mapping[str, tuple[str, ...]]
    head_faults: tuple[str, ...] = ANY_HEAD
    begin: Callable[[Place], None] = lambda place: None
    gaps: float = 1 / 8
    resume: tuple[str, ...] = ()
    signals_group: bool = False


def _nothing(directory: pathlib.Path) -> None:
    pass


def _trained(place: Place) -> dict[str, Any]:
    result = json.loads((place.work / "run" / "result.json").read_text(encoding="utf-8"))
    arrays = place.work / "run" / "policy" / "numpy_policy.npz"
    same = {name: result[name] for name in _SAME}
    return {**same, "policy": files.sha256(arrays) if arrays.exists() else ""}


def _training(
    name: str,
    words: Callable[[Place], tuple[str, ...]],
    settings: Mapping[str, Any],
    prepare: Callable[[pathlib.Path], None] = _nothing,
    collect: str = "pipes",
    **others: Any,
) -> Scenario:
    sets = [word for item in settings.items() for word in ("--set", "{}={}".format(*item))]

    def command(place: Place) -> list[str]:
        where = ["--workdir", str(place.work / "run"), "--collect", collect, "--workers", "2"]
        where += ["--chunk-timeout", str(_CHUNK_TIMEOUT_S)]
        return [*TFRL, "train", *words(place), *where, *sets, "--json"]

    targets = {"worker": ANY_WORKER} if collect == "pipes" else {"ray worker": ANY_WORKER}
    others = {"targets": targets, **others}
    return Scenario(name, prepare, command, _trained, resume=("--resume",), **others)


def _slow_function(agent: str) -> Callable[[Place], tuple[str, ...]]:
    function = ("--function", "tools.studies.functions:slow_sphere")
    return lambda place: ("learn_to_optimize", "--agent", agent, *function)


def _on_corpus(agent: str) -> Callable[[Place], tuple[str, ...]]:
    def words(place: Place) -> tuple[str, ...]:
        return ("inlining", "--agent", agent, "--corpus", str(place.inputs / "corpus"))

    return words


def _graphs(place: Place) -> tuple[str, ...]:
    model = str(place.inputs / "model.onnx")
    return ("tensor_graphs", "--agent", "ppo", "--model", model, "--objective", "analytic")


def _write_model(directory: pathlib.Path) -> None:
    import onnx

    from environments.tensor_graphs.models import families, make

    onnx.save(make(f"{families.FAMILIES[0]}:7"), str(directory / "model.onnx"))


_UNIT = """\
%(opening)s
struct Sum {
  int total = 0;
  void add(int x) { total += x > 100 ? 100 : 2 * x; }
  int half() const { return total / 2; }
};
%(closing)s
int measure%(number)d(int n) {
  Sum sum;
  for (int i = 0; i < n; ++i) sum.add(i * %(number)d);
  sum.add(%(number)d);
  return sum.half() + helper%(number)d(n) + helper%(number)d(%(number)d);
}
"""
_HELPER = (
    "static int helper%d(int x) {\n  int y = x;\n%s  return x > 7 ? helper%d(x - 3) + y : y;\n}\n"
)


def write_sources(directory: pathlib.Path, num_units: int) -> None:
    """Write C++ sources with calls to decide on: two projects, each with half of the sources."""
    for number in range(num_units):
        lines = "".join(f"  y = y * {k + 3} + (x >> {k % 5});\n" for k in range(number % 7 + 2))
        helper = _HELPER % (number, lines, number)
        unit = _UNIT % {"number": number, "opening": "namespace {", "closing": "}  // namespace"}
        path = directory / ("one", "two")[number % 2] / f"unit{number}.cc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(helper + unit, encoding="utf-8")


def _write_corpus(directory: pathlib.Path) -> None:
    from environments.inlining.corpus.building import build_corpus

    write_sources(directory / "src", 8)
    build_corpus([directory / "src" / name for name in ("one", "two")], directory / "corpus")


def _built_corpus(place: Place) -> dict[str, Any]:
    corpus = place.work / "corpus"
    names = ("corpus_description.json", "not_compiled.json")
    paths = [*corpus.rglob("*.bc"), *(corpus / name for name in names)]
    return {str(path.relative_to(corpus)): files.sha256(path) for path in paths if path.exists()}


def _corpus_command(place: Place) -> list[str]:
    sources = [str(place.inputs / "src" / name) for name in ("one", "two")]
    return [*TFRL, "corpus", "build", *sources, "-o", str(place.work / "corpus"), "--json"]


def _optimize_command(place: Place) -> list[str]:
    model, out = str(place.inputs / "model.onnx"), str(place.work / "fast.onnx")
    return [*TFRL, "optimize", model, "-o", out, "--objective", "analytic", "--no-measure",
            "--expansions", "300", "--seconds", "600", "--json"]  # fmt: skip


def _optimized(place: Place) -> dict[str, Any]:
    return {"fast.onnx": files.sha256(place.work / "fast.onnx")}


_MAKEFILE = """\
OBJECTS = $(patsubst %.cc,%.o,$(wildcard */*.cc))
all: $(OBJECTS)
%.o: %.cc
\t$(CXX) -Oz -c $< -o $@
"""


def _begin_build(place: Place) -> None:
    write_sources(place.work, 60)
    (place.work / "Makefile").write_text(_MAKEFILE, encoding="utf-8")


def _build_command(place: Place) -> list[str]:
    make = ["make", "-j2", "-C", str(place.work), "CXX=clang++-22"]
    return [*TFRL, "build", "--policy", "never", "--compiler", "clang-22", "--json", "--", *make]


def _built(place: Place) -> dict[str, Any]:
    paths = sorted(place.work.rglob("*.o"))
    return {str(path.relative_to(place.work)): files.sha256(path) for path in paths}


_ONLINE = {"evaluate_every": 20, "checkpoint_every": 2, "hidden_sizes": 8, "num_chunks": 6}
_COMPILERS = {"worker": ANY_WORKER, "compiler": ("kill_worker", "segfault_worker", "slow_pipe")}
_SEARCHED = ("kill", "terminate", "pause", "disk_full", "clock_jump")
SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _training(
            "ppo", _slow_function("ppo"),
            {**_ONLINE, "iterations": 20, "episodes_per_chunk": 8},
        ),
        _training(
            "es", _slow_function("es"),
            {**_ONLINE, "iterations": 20, "episodes_per_chunk": 8},
        ),
        _training(
            "world_model", _slow_function("world_model"),
            {"iterations": 4, "evaluate_every": 4, "checkpoint_every": 1, "hidden_sizes": 8},
        ),
        _training(
            "graphs", _graphs,
            {"iterations": 6, "num_chunks": 6, "episodes_per_chunk": 2, "graph_width": 8,
             "graph_rounds": 2, "max_steps": 8, "evaluate_every": 6, "checkpoint_every": 2},
            _write_model,
        ),
        _training(
            "inlining_ppo", _on_corpus("ppo"),
            {**_ONLINE, "iterations": 10, "episodes_per_chunk": 4, "evaluate_every": 10},
            _write_corpus, targets=_COMPILERS,
        ),
        _training(
            "bc_max", _on_corpus("bc_max"),
            {"iterations": 2, "num_models": 2, "epochs": 3, "hidden_sizes": 8, "num_rounds": 3},
            _write_corpus, targets=_COMPILERS,
        ),
        Scenario(
            "corpus", lambda directory: write_sources(directory / "src", 16), _corpus_command,
            _built_corpus, {"compiler": ("stop_worker", "slow_pipe")},
        ),
        Scenario(
            "optimize", _write_model, _optimize_command, _optimized, {}, _SEARCHED,
        ),
        Scenario(
            "build", _nothing, _build_command, _built, {"compiler": ("stop_worker", "slow_pipe")},
            begin=_begin_build, signals_group=True,
        ),
        _training(
            "ppo_ray", _slow_function("ppo"),
            {**_ONLINE, "iterations": 20, "episodes_per_chunk": 8},
            collect="ray", head_faults=WITH_RAY, gaps=1 / 3,
        ),
    )
}  # fmt: skip
