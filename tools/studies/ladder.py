"""CMake projects built for size at rungs of options, with policies and without."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from environments.errors import UserError
from environments.inlining.plugin.compiler import why_no_plugins
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy
from tools.studies.cmake_builds import RUNGS, TREES, Build, Compiler, unpack
from tools.studies.savings import change_percent, changes_of
from tools.studies.study import Record, Records, Study, Table, Trial, first, mean

_COMPILERS = tuple(f"clang-{version}" for version in range(30, 18, -1))
PLAIN, FIXED, POLICY = "-Oz", "threshold", "policy"
_OF_BUILD = {"cpu": "cpu_s", "instructions": "instructions"}
_PERCENT = "{:+.2f}%"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ladder:
    """What is built, how, and with which policy.

    Attributes:
      policy: a policy's directory or name; by default the one in the installation.
      compiler: a clang from LLVM 19 on; by default the newest on PATH.
      projects: one of the projects held out of the corpus; may be repeated.
      rungs: one of the rungs; may be repeated.
      ways: what -Oz alone is compared with; may be repeated.
      thresholds: one of LLVM's -inline-threshold; may be repeated.
      processes: compilers at a time.
    """

    policy: str = option(shipped.NAME, metavar="DIR|NAME")
    compiler: str = option("", metavar="CLANG")
    projects: tuple[str, ...] = option(
        tuple(TREES), flag="--project", metavar="NAME", choices=tuple(TREES)
    )
    rungs: tuple[str, ...] = option(
        tuple(RUNGS), flag="--rung", metavar="RUNG", choices=tuple(RUNGS)
    )
    ways: tuple[str, ...] = option(
        (FIXED, POLICY), flag="--way", metavar="WAY", choices=(FIXED, POLICY)
    )
    thresholds: tuple[int, ...] = option((-50, 0, 15, 30, 50), flag="--threshold", metavar="N")
    processes: int = option(2, metavar="N", minimum=1)


def _trials(options: Ladder) -> Iterator[Trial]:
    """Yield a trial for each rung, project and way; -Oz alone comes first.

    Raises:
      UserError: cmake, lld, the policy or a clang whose plugins can be built is missing.
    """
    if shutil.which("cmake") is None:
        raise UserError("expected cmake, found none; install it: apt-get install cmake")
    newest = next((name for name in _COMPILERS if shutil.which(name)), "clang")
    compiler = options.compiler or newest
    if reason := why_no_plugins(compiler) or Compiler(compiler).why_no_rungs():
        raise UserError(reason)
    for rung in options.rungs:
        for project in options.projects:
            about = {
                **{"rung": rung, "project": project, "compiler": compiler},
                "processes": options.processes,
            }
            for file, way in _ways(options):
                yield Trial(f"{project}-{rung}-{file}", {**about, **way})


def _ways(options: Ladder) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ways of building: a name for files, and the part of a trial that says which."""
    default = {"policy": "default", "policy_sha256": "", "threshold": None}
    yield "Oz", {**default, "way": PLAIN}
    for threshold in options.thresholds if FIXED in options.ways else ():
        yield f"{FIXED}{threshold}", {**default, "way": FIXED, "threshold": threshold}
    if POLICY in options.ways:
        digest = load_policy(options.policy).fingerprint
        chosen = {"policy": options.policy, "policy_sha256": digest}
        yield POLICY, {**default, **chosen, "way": POLICY}


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Build a project at one rung in one way; return sizes, processor time and instructions.

    Only what the programs said remains in `workdir`.

    Raises:
      UserError: the project cannot be configured or built, or its driver fails.
    """
    name, workdir = about["project"], workdir.absolute()
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    unpacked, directory, tree = workdir / "source", workdir / "build", TREES[name]
    source = unpack(name, unpacked)
    if tree.is_in_source:
        directory = source
    compiler = Compiler(about["compiler"])
    build = Build(name, tree, source, directory, workdir / "build.log", compiler)
    build.configure(RUNGS[about["rung"]], about["threshold"])
    measured = build.make(about["policy"], about["processes"])
    measured["instructions"] = build.count_instructions(tuple(measured["images"]))
    for scratch in (unpacked, workdir / "build"):
        shutil.rmtree(scratch, ignore_errors=True)
    (workdir / "driver").unlink(missing_ok=True)
    return measured


def changes(records: Records) -> Iterator[Record]:
    """Yield how the images of each build differ from those of -Oz alone at the same rung.

    Of each build there is a record for each image that both have; its figures are changes in
    percent, None where there is nothing to compare. The last, whose image is "", has all images of
    the project together.
    """
    plain = {
        (record["rung"], record["project"]): record for record in records if record["way"] == PLAIN
    }
    for record in records:
        default = plain.get((record["rung"], record["project"]))
        if record["way"] == PLAIN or default is None:
            continue
        of_build = {
            figure: change_percent(record[of], default[of]) for figure, of in _OF_BUILD.items()
        }
        both = {
            image: (sizes, default["images"][image])
            for image, sizes in record["images"].items()
            if image in default["images"]
        }
        for image, pair in both.items():
            yield {**record, **of_build, "image": image, **changes_of([pair])}
        yield {**record, **of_build, "image": "", **changes_of(both.values())}


def shown(records: Records) -> Iterator[Record]:
    """Yield changes by rung and way: those of images, then whole projects as parts of a mean."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in changes(records):
        way = row["way"] if row["threshold"] is None else f"{row['way']} {row['threshold']}"
        groups.setdefault((row["rung"], way), []).append({**row, "way": way})
    for rows in groups.values():
        yield from (row for row in rows if row["image"])
        yield from ({**row, "project": "mean"} for row in rows if not row["image"])


LADDER = Study(
    """CMake projects built for size at rungs of options, with policies and without.

    python -m tools.studies ladder -o runs/ladder

Unpacks the projects that were held out of the corpus (corpus_projects.json) and builds each as a
shared library by a stock clang and lld, at each rung: with -Oz alone, with fixed thresholds for
inlining, and with the policy inside clang as by `tfrl build`.
  plain      nothing more
  gc-icf     -ffunction-sections -fdata-sections, and lld's --gc-sections --icf=all
  no-tables  the same, -fno-unwind-tables -fno-asynchronous-unwind-tables; functions that an
             exception may pass through keep their tables
It compares what is linked, the processor time of the build, and the instructions that a small
program (drivers/) executes with the library under valgrind. It needs cmake (3.28 for lightgbm),
lld, llvm-ar and a clang whose plugins can be built; without valgrind no instructions are
counted.""",
    Ladder,
    _trials,
    measure,
    [
        Table(
            "Change against -Oz alone at the same rung.",
            ("rung", "way", "project", "image"),
            {
                "compiles steered": first(
                    lambda build: (
                        f"{build['steered']} of {build['compiles']}"
                        if build["project"] != "mean"
                        else None
                    )
                ),
                "code": mean("code", _PERCENT),
                "unwind tables": mean("tables", _PERCENT),
                "read-only data": mean("rodata", _PERCENT),
                "all three": mean("loaded", _PERCENT),
                "stripped file": mean("file", _PERCENT),
                "build's processor time": mean("cpu", "{:+.1f}%"),
                "instructions": mean("instructions", _PERCENT),
            },
            derive=shown,
            label="rung, way, library",
        )
    ],
)
