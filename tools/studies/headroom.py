"""What deciding inlining could save where no policy decides: link-time optimisation, C and -Os."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence

from environments.errors import UserError
from environments.inlining.collection.episode import compile_under
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.corpus.modules import Module
from environments.inlining.linking.images import LOADED_PARTS
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.compiler import PluginClang, why_no_plugins
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy
from tools.studies.climbing import Explorer, LinkingExplorer, climb
from tools.studies.cmake_builds import Compiler, children_s
from tools.studies.source_builds import SHAPE, SourceBuild, sources_of
from tools.studies.study import Record, Records, Study, Table, Trial, mean

PROJECTS = {
    "lto": ("uchardet", "box2d", "marisa"),
    "c": ("lua", "lz4"),
    "os": ("uchardet", "box2d", "marisa"),
}
_PERCENT = "{:+.2f}%"
# A plugin that records decides in all functions and modules, those of -Os and of LTO too.
_EVERYWHERE = {"TFRL_INLINING_ROWS": os.devnull, "TFRL_INLINING_LOG": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headroom:
    """What is explored, and how long.

    Attributes:
      parts: lto, c or os; may be repeated. By default all.
      projects: a project of corpus_projects.json; may be repeated. By default a few small ones.
      policy: a policy's directory or name; by default the one in the installation.
      compiler: a clang from LLVM 19 on, with its lld.
      rounds: explorations of a module, each around the best decisions of those before.
    """

    parts: tuple[str, ...] = option((), flag="--of", metavar="PART", choices=tuple(PROJECTS))
    projects: tuple[str, ...] = option((), flag="--project", metavar="NAME")
    policy: str = option(shipped.NAME, metavar="DIR|NAME")
    compiler: str = option("clang-22", metavar="CLANG")
    rounds: int = option(2, metavar="N", minimum=1)


def _trials(options: Headroom) -> Iterator[Trial]:
    """Yield a trial for each part and project.

    Raises:
      UserError: lld, the policy or a clang whose plugins can be built is missing.
    """
    if reason := why_no_plugins(options.compiler) or Compiler(options.compiler).why_no_rungs():
        raise UserError(reason)
    how = {
        **{"compiler": options.compiler, "policy": options.policy, "rounds": options.rounds},
        "policy_sha256": load_policy(options.policy).fingerprint,
    }
    for part in options.parts or PROJECTS:
        for project in options.projects or PROJECTS[part]:
            yield Trial(f"{part}-{project}", {"part": part, "project": project, **how})


def _measure_lto(build: SourceBuild) -> Iterator[tuple[str, str, Record]]:
    """Link with link-time optimisation; explore what it decides in the whole program."""
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
        if kind == "full":
            yield f"{alone}, best found", alone, _explore_link(build, plain)


def _explore_link(build: SourceBuild, objects: Sequence[pathlib.Path]) -> Record:
    """Return the sizes of the smallest image that full link-time optimisation can make."""
    build.link(objects, "-flto=full", "-Wl,--save-temps")
    path = build.image.with_name(f"{build.image.name}.0.2.internalize.bc")
    written = build.image.with_suffix(".o")

    def link(*options: str, **environment: str) -> tuple[bytes, bytes]:
        also = f"-Wl,--lto-obj-path={written}"
        build.link(objects, "-flto=full", also, *options, **environment)
        return written.read_bytes(), build.image.read_bytes()

    explorer = LinkingExplorer(build.toolchain, link)
    with contextlib.closing(explorer):
        climb(explorer, Module(build.project, path, build.project, ""), build.policy, build.rounds)
    return {**build.sizes(), "compiles": explorer.num_compiles}


def _measure_c(build: SourceBuild) -> Iterator[tuple[str, str, Record]]:
    """Link objects that are compiled alone; explore each module."""
    bitcode = build.compile("bitcode", "-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm")
    modules = [
        Module(unit.name, path, build.project, unit.language, ("-Oz", "-c", *SHAPE))
        for unit, path in zip(build.units, bitcode, strict=True)
    ]
    compiler, explorer = PluginClang(build.toolchain), Explorer(build.toolchain)
    ways: dict[str, Callable[[Module], CompiledModule]] = {
        "-Oz": compiler.compile_plain,
        "policy": lambda module: compile_under(build.policy, compiler, module),
        "best found": lambda module: climb(explorer, module, build.policy, build.rounds),
    }
    for way, compile_fn in ways.items():
        objects = [path.with_suffix(".elf") for path in bitcode]
        for module, path in zip(modules, objects, strict=True):
            path.write_bytes(compile_fn(module).data)
        explorer.close()
        num_compiles = explorer.num_compiles or len(modules)
        yield way, "-Oz", {**build.link(objects), "compiles": num_compiles}


def _measure_os(build: SourceBuild) -> Iterator[tuple[str, str, Record]]:
    """Link objects of -Os and -Oz, with the policy and without."""
    for level in ("-Os", "-Oz"):
        yield level, "-Os", build.link(build.compile(level, level))
        loading = f"-fpass-plugin={build.plugin}"
        steered = build.compile(f"{level}-steered", level, loading, **_EVERYWHERE)
        yield f"{level}, policy", "-Os", build.link(steered)


_MEASURES = {"lto": _measure_lto, "c": _measure_c, "os": _measure_os}


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Link a project in all ways of a part; return the sizes of each, and what each took.

    Raises:
      UserError: a source or the project cannot be compiled or linked.
    """
    workdir = workdir.absolute()
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    units = sources_of(about["project"], workdir / "source")
    toolchain, policy = find_toolchain(about["compiler"]), load_policy(about["policy"])
    image = workdir / "image"
    build = SourceBuild(about["project"], units, toolchain, policy, about["rounds"], image)
    build_plugin(toolchain, source_of(policy))  # not on the account of what follows
    ways, began_s = {}, children_s()
    for way, against, measured in _MEASURES[about["part"]](build):
        ways[way] = {"against": against, **measured, "cpu_s": children_s() - began_s}
        began_s = children_s()
    shutil.rmtree(workdir)
    return {"ways": ways}


def changes(records: Records) -> Iterator[Record]:
    """Yield how each way of each project differs from LLVM alone, in percent; then for the mean."""
    rows = []
    for record in records:
        for way, sizes in record["ways"].items():
            plain, row = record["ways"][sizes["against"]], {**record, **sizes, "way": way}
            for name, parts in (("code", LOADED_PARTS[:1]), ("loaded", LOADED_PARTS)):
                before, after = (sum(image[part] for part in parts) for image in (plain, sizes))
                row[name] = 100 * (after / before - 1)
            if way != sizes["against"]:
                rows.append(row)

    def by_way(row: Record) -> tuple[str, str]:
        return row["part"], row["way"]

    for _, same in itertools.groupby(sorted(rows, key=by_way), by_way):
        of_projects = list(same)
        yield from of_projects
        yield from ({**row, "project": "mean"} for row in of_projects)


HEADROOM = Study(
    """What deciding inlining could save where no policy decides: LTO, C and -Os.

    python -m tools.studies headroom -o runs/headroom

Compiles all sources of small projects (corpus_projects.json) with a stock clang and links them by
lld with --gc-sections --icf=all, as shared libraries or, with a main, as programs.
  lto  -Oz with link-time optimisation: the policy before the link, in lld, and in both; and the
       least code that exploring the decisions of full LTO finds, where a compile is a link
  c    -Oz: the policy, and the least code that exploring each module finds
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
                "compiles": mean("compiles", "{:.0f}"),
                "processor time, s": mean("cpu_s", "{:.0f}"),
            },
            derive=changes,
            label="part, way, project",
        )
    ],
)
