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

ANY_WORKER = (
    *("kill_worker", "segfault_worker", "hang_worker", "stop_worker", "slow_pipe"),
    "out_of_memory",
)
ANY_HEAD = ("kill", "interrupt", "terminate", "pause", "truncate_file", "flip_bit", "disk_full")
WITH_RAY = (*ANY_HEAD, "vanish_node")
# Longer than a stop, and than a chunk on a busy machine.
_CHUNK_TIMEOUT_S = 15


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a run is: all of it below one directory.

    Attributes:
      root: the directory; in it w has the command's output, t is its TMPDIR, c its XDG_CACHE_HOME
        and h its HOME.
      inputs: what `Scenario.prepare` made; shared by all runs, and only read.
    """

    root: pathlib.Path
    inputs: pathlib.Path

    @property
    def work(self) -> pathlib.Path:
        """Where the command's output goes."""
        return self.root / "w"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command, what may be broken in it, and what must come of it all the same.

    Attributes:
      name: what the campaign calls it.
      prepare: makes its inputs in a directory.
      begin: puts what the command changes into the place of a run.
      command: the command's words after the program; {inputs} and {work} stand for a place's.
      end: what the finished command left, as digests by name.
      targets: roles of processes (`striking.py`) -> kinds of faults that strike them.
      head_faults: kinds of faults that strike the command itself, or what it wrote.
      gaps: mean time from one fault of a worker to the next, as a share of the quiet run's.
      resume: what is added to the command when it goes on.
      signals_group: whether signals go to the command's whole group, as a terminal sends them.
      program: what the command begins with.
    """

    name: str
    prepare: Callable[[pathlib.Path], None]
    command: str
    end: Callable[[Place], Mapping[str, Any]]
    targets: Mapping[str, tuple[str, ...]]
    head_faults: tuple[str, ...] = ANY_HEAD
    begin: Callable[[Place], None] = lambda place: None
    gaps: float = 1 / 8
    resume: tuple[str, ...] = ()
    signals_group: bool = False
    program: tuple[str, ...] = TFRL

    def words(self, place: Place) -> list[str]:
        """Return the command for a place."""
        words = (word.format(inputs=place.inputs, work=place.work) for word in self.command.split())
        return [*self.program, *words]


def _nothing(directory: pathlib.Path) -> None:
    pass


def _trained(place: Place) -> dict[str, Any]:
    result = json.loads((place.work / "run" / "result.json").read_text(encoding="utf-8"))
    arrays = place.work / "run" / "policy" / "numpy_policy.npz"
    same = {name: result[name] for name in _SAME}
    return {**same, "policy": files.sha256(arrays) if arrays.exists() else ""}


def _training(
    name: str,
    words: str,
    settings: Mapping[str, Any],
    prepare: Callable[[pathlib.Path], None] = _nothing,
    collect: str = "pipes",
    **others: Any,
) -> Scenario:
    sets = [word for item in settings.items() for word in ("--set", "{}={}".format(*item))]
    command = (
        f"train {words} --workdir {{work}}/run --collect {collect} --workers 2 "
        f"--chunk-timeout {_CHUNK_TIMEOUT_S} {' '.join(sets)} --json"
    )
    others = {"targets": {"worker" if collect == "pipes" else "ray worker": ANY_WORKER}} | others
    return Scenario(name, prepare, command, _trained, resume=("--resume",), **others)


def _slow_function(agent: str) -> str:
    return f"learn_to_optimize --agent {agent} --function tools.studies.functions:slow_sphere"


def _on_corpus(agent: str) -> str:
    return f"inlining --agent {agent} --corpus {{inputs}}/corpus"


_GRAPHS = "tensor_graphs --agent ppo --model {inputs}/model.onnx --objective analytic"


def _write_model(directory: pathlib.Path) -> None:
    import onnx

    from environments.tensor_graphs.models import families, make

    onnx.save(make(f"{families.FAMILIES[0]}:7"), str(directory / "model.onnx"))


_UNIT = """\
static int helper%(number)d(int x) {
  int y = x;
%(lines)s  return x > 7 ? helper%(number)d(x - 3) + y : y;
}
namespace {
struct Sum {
  int total = 0;
  void add(int x) { total += x > 100 ? 100 : 2 * x; }
  int half() const { return total / 2; }
};
}  // namespace
int measure%(number)d(int n) {
  Sum sum;
  for (int i = 0; i < n; ++i) sum.add(i * %(number)d);
  sum.add(%(number)d);
  return sum.half() + helper%(number)d(n) + helper%(number)d(%(number)d);
}
"""


def write_sources(directory: pathlib.Path, num_units: int) -> None:
    """Write C++ sources with calls to decide on: two projects, each with half of the sources."""
    for number in range(num_units):
        lines = "".join(f"  y = y * {k + 3} + (x >> {k % 5});\n" for k in range(number % 7 + 2))
        path = directory / ("one", "two")[number % 2] / f"unit{number}.cc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_UNIT % {"number": number, "lines": lines}, encoding="utf-8")


def _write_corpus(directory: pathlib.Path) -> None:
    from environments.inlining.corpus.building import build_corpus

    write_sources(directory / "src", 8)
    build_corpus([directory / "src" / name for name in ("one", "two")], directory / "corpus")


def _digests(directory: pathlib.Path, *patterns: str) -> dict[str, str]:
    """Return the digests of files by their relative paths."""
    paths = (path for pattern in patterns for path in sorted(directory.rglob(pattern)))
    return {str(path.relative_to(directory)): files.sha256(path) for path in paths}


_CORPUS = "corpus build {inputs}/src/one {inputs}/src/two -o {work}/corpus --json"
_OPTIMIZE = (
    "optimize {inputs}/model.onnx -o {work}/fast.onnx --objective analytic --no-measure "
    "--expansions 300 --seconds 600 --json"
)
_BUILD = "build --policy never --compiler clang-22 --json -- make -j2 -C {work} CXX=clang++-22"


_MAKEFILE = """\
OBJECTS = $(patsubst %.cc,%.o,$(wildcard */*.cc))
all: $(OBJECTS)
%.o: %.cc
\t$(CXX) -Oz -c $< -o $@
"""


def _begin_build(place: Place) -> None:
    write_sources(place.work, 60)
    (place.work / "Makefile").write_text(_MAKEFILE, encoding="utf-8")


_ONLINE = {"evaluate_every": 20, "checkpoint_every": 2, "hidden_sizes": 8, "num_chunks": 6}
_COMPILERS = {"worker": ANY_WORKER, "compiler": ("kill_worker", "segfault_worker", "slow_pipe")}
_SEARCHED = ("kill", "terminate", "pause", "disk_full")
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
            "graphs", _GRAPHS,
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
            "corpus", lambda directory: write_sources(directory / "src", 16), _CORPUS,
            lambda place: _digests(place.work / "corpus", "*.bc", "*.json"),
            {"compiler": ("stop_worker", "slow_pipe")},
        ),
        Scenario(
            "optimize", _write_model, _OPTIMIZE, lambda place: _digests(place.work, "fast.onnx"),
            {}, _SEARCHED,
        ),
        Scenario(
            "build", _nothing, _BUILD, lambda place: _digests(place.work, "*.o"),
            {"compiler": ("stop_worker", "slow_pipe")}, begin=_begin_build,
            signals_group=True,
        ),
        _training(
            "ppo_ray", _slow_function("ppo"),
            {**_ONLINE, "iterations": 20, "episodes_per_chunk": 8},
            collect="ray", head_faults=WITH_RAY, gaps=1 / 3,
        ),
    )
}  # fmt: skip
