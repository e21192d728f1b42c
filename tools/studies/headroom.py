"""What a policy would save where none decides: in link-time optimisation and at -Os."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator

from environments.errors import UserError
from environments.inlining.plugin.compiler import why_no_plugins
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy
from tools.studies.cmake_builds import Compiler
from tools.studies.image_sizes import changes_of
from tools.studies.source_builds import SourceBuild, sources_of
from tools.studies.study import Record, Records, Study, Table, Trial, mean

PROJECTS = ("uchardet", "box2d", "marisa")
_PERCENT = "{:+.2f}%"
# A plugin that records decides in all functions and modules, those of -Os and of LTO too.
_EVERYWHERE = {"TFRL_INLINING_ROWS": os.devnull, "TFRL_INLINING_LOG": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headroom:
    """What is built.

    Attributes:
      parts: lto or os; may be repeated.
      projects: a project of corpus_projects.json; may be repeated.
      policy: a policy's directory or name; by default the one in the installation.
      compiler: a clang from LLVM 19 on, with its lld.
    """

    parts: tuple[str, ...] = option(
        ("lto", "os"), flag="--of", metavar="PART", choices=("lto", "os")
    )
    projects: tuple[str, ...] = option(PROJECTS, flag="--project", metavar="NAME")
    policy: str = option(shipped.NAME, metavar="DIR|NAME")
    compiler: str = option("clang-22", metavar="CLANG")


def _trials(options: Headroom) -> Iterator[Trial]:
    """Yield a trial for each part and project.

    Raises:
      UserError: lld, the policy or a clang whose plugins can be built is missing.
    """
    if reason := why_no_plugins(options.compiler) or Compiler(options.compiler).why_no_rungs():
        raise UserError(reason)
    how = {
        **{"compiler": options.compiler, "policy": options.policy},
        "policy_sha256": load_policy(options.policy).fingerprint,
    }
    for part in options.parts:
        for project in options.projects:
            yield Trial(f"{part}-{project}", {"part": part, "project": project, **how})


def _measure_lto(build: SourceBuild) -> Iterator[tuple[str, str, Record]]:
    """Link with link-time optimisation, with the policy before the link, in it, and in both."""
    compiling, linking = f"-fpass-plugin={build.plugin}", f"-Wl,--load-pass-plugin={build.plugin}"
    for kind in ("full", "thin"):
        lto, alone = f"-flto={kind}", f"{kind} LTO"
        plain = build.compile(kind, "-Oz", lto)
        yield alone, alone, build.link(plain, lto)
        steered = build.compile(f"{kind}-steered", "-Oz", lto, compiling, **_EVERYWHERE)
        yield f"{alone}, policy before the link", alone, build.link(steered, lto)
        sizes = build.link(plain, lto, linking, **_EVERYWHERE)
        yield f"{alone}, policy in lld", alone, sizes
        sizes = build.link(steered, lto, linking, **_EVERYWHERE)
        yield f"{alone}, policy in both", alone, sizes


def _measure_os(build: SourceBuild) -> Iterator[tuple[str, str, Record]]:
    """Link objects of -Os and -Oz, with the policy and without."""
    for level in ("-Os", "-Oz"):
        yield level, "-Os", build.link(build.compile(level, level))
        loading = f"-fpass-plugin={build.plugin}"
        steered = build.compile(f"{level}-steered", level, loading, **_EVERYWHERE)
        yield f"{level}, policy", "-Os", build.link(steered)


_MEASURES = {"lto": _measure_lto, "os": _measure_os}


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Link a project in all ways of a part; return the sizes of each.

    Raises:
      UserError: a source or the project cannot be compiled or linked.
    """
    workdir = workdir.absolute()
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    units = sources_of(about["project"], workdir / "source")
    toolchain, policy = find_toolchain(about["compiler"]), load_policy(about["policy"])
    build = SourceBuild(about["project"], units, toolchain, policy, workdir / "image")
    measures = _MEASURES[about["part"]](build)
    ways = {way: {"against": against, **sizes} for way, against, sizes in measures}
    shutil.rmtree(workdir)
    return {"ways": ways}


def changes(records: Records) -> Iterator[Record]:
    """Yield how each way of each project differs from LLVM alone, in percent; then for the mean."""
    rows = []
    for record in records:
        for way, sizes in record["ways"].items():
            if way != sizes["against"]:
                both = sizes, record["ways"][sizes["against"]]
                rows.append({**record, "way": way, **changes_of([both])})

    def by_way(row: Record) -> tuple[str, str]:
        return row["part"], row["way"]

    for _, same in itertools.groupby(sorted(rows, key=by_way), by_way):
        of_projects = list(same)
        yield from of_projects
        yield from ({**row, "project": "mean"} for row in of_projects)


HEADROOM = Study(
    """What a policy would save where none decides: in link-time optimisation and at -Os.

    python -m tools.studies headroom -o runs/headroom

Compiles all sources of small projects (corpus_projects.json) with a stock clang and links them to
shared libraries by lld with --gc-sections --icf=all.
  lto  -Oz with link-time optimisation: the policy before the link, in lld, and in both
  os   -Os and -Oz, each with the policy and without, against -Os
The policy decides in all functions here, also where the one of `tfrl build` leaves LLVM alone. It
needs lld, llvm-ar and a clang whose plugins can be built.""",
    Headroom,
    _trials,
    measure,
    [
        Table(
            "Change of the linked image against LLVM alone.",
            ("part", "way", "project"),
            {
                "code": mean("code", _PERCENT),
                "code, tables, read-only data": mean("loaded", _PERCENT),
            },
            derive=changes,
            label="part, way, project",
        )
    ],
)
