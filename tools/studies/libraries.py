"""CMake projects built twice, plainly and with a policy inside their clang; images compared."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from environments.errors import UsageError, UserError
from environments.inlining.plugin.compiler import why_no_plugins
from tfrl_systems.reporting import Terminal
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining.building import steered_build
from tools.distributions import default_cache, download_all
from tools.fetch_corpus import extract, read_projects
from tools.studies import learning
from tools.studies.savings import image_savings
from tools.studies.study import Record, Records, Study, Table, Trial, first, median

_COMPILERS = tuple(f"clang-{version}" for version in range(30, 18, -1))
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=MinSizeRel",
    "-DCMAKE_C_FLAGS_MINSIZEREL=-Oz",
    "-DCMAKE_CXX_FLAGS_MINSIZEREL=-Oz",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",  # for projects older than today's CMake
)


class Tree(NamedTuple):
    """How to build a project with CMake."""

    options: tuple[str, ...] = ()
    root: str = "."  # where CMakeLists.txt is, in the distribution
    missing: tuple[str, ...] = ()  # files that CMake asks for; empty ones will do
    is_in_source: bool = False  # writes its images beside its sources: each build is in a copy


TREES = {
    "highs": Tree(
        (
            *("-DFAST_BUILD=ON", "-DBUILD_TESTING=OFF", "-DBUILD_EXAMPLES=OFF"),
            *("-DBUILD_CXX_EXE=OFF", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"),
        ),
        missing=("highs.pc.in", "app/CMakeLists.txt"),
    ),
    "lightgbm": Tree(("-DUSE_OPENMP=OFF", "-DBUILD_CLI=OFF"), is_in_source=True),
    "zxing": Tree(root="core"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Libraries:
    """What is built, and with which policy.

    Attributes:
      policy: a policy's directory or name.
      compiler: a clang from LLVM 19 on; by default the newest on PATH.
      projects: one of the projects held out of the corpus; may be repeated. By default all of them,
        or none with --source.
      sources: a CMake project of your own; may be repeated.
      cmake: one of CMake's options, for --source; may be repeated.
      processes: compilers at a time.
    """

    policy: str = option(metavar="DIR|NAME")
    compiler: str = option("", metavar="CLANG")
    projects: tuple[str, ...] = option((), flag="--project", metavar="NAME", choices=tuple(TREES))
    sources: tuple[pathlib.Path, ...] = option((), flag="--source", metavar="DIR")
    cmake: tuple[str, ...] = option((), flag="--option", metavar="OPTION")
    processes: int = option(2, metavar="N", minimum=1)


def _trials(options: Libraries) -> Iterator[Trial]:
    """Yield a trial for each project.

    Raises:
      UserError: cmake or a clang whose plugins can be built is missing.
      UsageError: two projects have the same name.
    """
    if shutil.which("cmake") is None:
        raise UserError("expected cmake, found none; install it: apt-get install cmake")
    newest = next((name for name in _COMPILERS if shutil.which(name)), "clang")
    compiler = options.compiler or newest
    if reason := why_no_plugins(compiler):
        raise UserError(reason)
    names = options.projects or (() if options.sources else tuple(sorted(TREES)))
    sources = dict.fromkeys(names, "")
    for source in options.sources:
        if source.resolve().name in sources:
            raise UsageError(f"--source {source}: expected another name, found a second one of it")
        sources[source.resolve().name] = str(source.resolve())
    shared = {
        **{"policy": options.policy, "policy_sha256": learning.digest_of(options.policy)},
        **{"compiler": compiler, "processes": options.processes},
    }
    for name, place in sources.items():
        about = {**shared, "project": name, "source": place}
        yield Trial(name, {**about, "options": options.cmake if place else ()})


def _unpacked(name: str, directory: pathlib.Path) -> pathlib.Path:
    """Download and unpack a project of the corpus; return its sources."""
    (project,) = (project for project in read_projects() if project.name == name)
    downloaded = download_all({name: project}, default_cache("sdists"))
    shutil.rmtree(directory, ignore_errors=True)
    root = extract(dataclasses.replace(project, root="", files={}), downloaded[name], directory)
    for missing in TREES[name].missing:
        (root / missing).parent.mkdir(exist_ok=True)
        (root / missing).touch()
    return (root / TREES[name].root).absolute()


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Configure and build a project in two directories; return what `tfrl build` found.

    Raises:
      UserError: the project cannot be configured or built.
    """
    name = about["project"]
    source = pathlib.Path(about["source"] or _unpacked(name, workdir / "source"))
    tree = Tree(tuple(about["options"])) if about["source"] else TREES[name]
    plain, steered = (workdir / kind for kind in ("plain", "steered"))
    clang = pathlib.Path(shutil.which(about["compiler"]) or about["compiler"])
    clangxx = clang.with_name(clang.name.replace("clang", "clang++", 1))
    chosen = (f"-DCMAKE_C_COMPILER={clang}", f"-DCMAKE_CXX_COMPILER={clangxx}")
    for directory in (plain, steered):
        shutil.rmtree(directory, ignore_errors=True)
        root = shutil.copytree(source, directory) if tree.is_in_source else source
        _run(["cmake", "-S", root, "-B", directory, *_OPTIONS, *chosen, *tree.options], directory)
    command = ["cmake", "--build", str(steered), f"-j{about['processes']}"]
    began_s = _children_s()
    _run([*command[:2], plain, *command[3:]], plain)
    plain_s = _children_s() - began_s
    with Terminal() as terminal:
        build = steered_build.Build(
            command, about["policy"], [about["compiler"]], plain, quiet=True
        )
        outcome = steered_build.build(build, terminal)
    if outcome["status"]:
        raise UserError(f"{name}: expected it to build, found exit status {outcome['status']}")
    return {"cpu_over_plain": (_children_s() - began_s - plain_s) / plain_s, **outcome}


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(command: Sequence[object], directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "tfrl-build.log"
    with log.open("a") as output:
        done = subprocess.run(
            [str(word) for word in command], stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        raise UserError(
            f"expected {command[0]} to end well, found exit status {done.returncode}; see {log}"
        )


def _by_image(records: Records) -> Iterator[Record]:
    for record in records:
        for image in record["images"]:
            if "default_text_bytes" in image:
                # Their change, not their saving, as people read of libraries.
                figures: dict[str, Any] = {
                    k: -percent for k, percent in image_savings(image).items()
                }
                yield {**record, **figures, "image": pathlib.Path(image["path"]).name}


LIBRARIES = Study(
    """CMake projects built twice, plainly and with a policy inside their clang; images compared.

    python -m tools.studies libraries --policy runs/quickstart/policy --project zxing -o runs/builds

Unpacks the projects that were held out of the corpus (corpus_projects.json), configures each in two
directories, builds one plainly and one by `tfrl build`, for size (-Oz) and as shared libraries, and
compares what is linked. It needs cmake and a clang whose plugins can be built.""",
    Libraries,
    _trials,
    measure,
    [
        Table(
            "Change of what is linked in both builds, and processor time over the plain build's.",
            ("project", "image"),
            {
                "compiles steered": first(
                    lambda build: f"{build['steered']} of {build['compiles']}"
                ),
                "code": first("code_percent", "{:+.2f}%"),
                "code + unwind + read-only": first("loaded_percent", "{:+.2f}%"),
                "stripped file": first("file_percent", "{:+.2f}%"),
                "processor time": median("cpu_over_plain", "{:.3f}"),
            },
            derive=_by_image,
            label="library",
        )
    ],
)
