"""Build CMake projects twice, plainly and with a policy inside their clang, and compare the images.

    python -m tools.build_twice --policy runs/quickstart/policy --project zxing -o runs/builds

unpacks the projects that were held out of the benchmark corpus (corpus_projects.json), configures
each in two directories, builds one plainly and one by `tfrl build`, and prints what the linked
libraries and programs weigh. --source DIR builds a project of your own. Everything is built for
size (-Oz) as shared libraries. It needs cmake and a clang whose plugins can be built.

The distributions come from the package index that pip is configured to use (`distributions`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.plugin.compiler import why_no_plugins
from tfrl_systems.reporting import Terminal
from tfrl_systems.systems.inlining.building import steered_build
from tools import running
from tools.benchmarks.inlining_images import PARTS, saving_percent
from tools.benchmarks.shared import markdown_table
from tools.distributions import default_cache, download_all
from tools.fetch_corpus import extract, read_projects

_COMPILERS = tuple(f"clang-{version}" for version in range(30, 18, -1))
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=MinSizeRel",
    "-DCMAKE_C_FLAGS_MINSIZEREL=-Oz",
    "-DCMAKE_CXX_FLAGS_MINSIZEREL=-Oz",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",  # for projects older than today's CMake
)


@dataclasses.dataclass(frozen=True)
class Tree:
    """How to build a project with CMake.

    Attributes:
      options: more of CMake's options.
      root: the directory with CMakeLists.txt, in the distribution.
      missing: files that CMake asks for and the distribution lacks; empty ones will do.
      is_in_source: whether it writes its images beside its sources. Each build then is in a copy.
    """

    options: tuple[str, ...] = ()
    root: str = "."
    missing: tuple[str, ...] = ()
    is_in_source: bool = False


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


def build_twice(
    name: str, source: pathlib.Path, tree: Tree, asked: argparse.Namespace
) -> dict[str, Any]:
    """Configure and build a project in two directories; return what `tfrl build` found.

    Raises:
      UserError: the project cannot be configured or built.
    """
    plain, steered = (asked.output / name / kind for kind in ("plain", "steered"))
    clang = shutil.which(asked.compiler)
    assert clang is not None  # `run` has looked
    beside = pathlib.Path(clang)
    clangxx = beside.with_name(beside.name.replace("clang", "clang++", 1))
    chosen = (f"-DCMAKE_C_COMPILER={clang}", f"-DCMAKE_CXX_COMPILER={clangxx}")
    for directory in (plain, steered):
        shutil.rmtree(directory, ignore_errors=True)
        of = source
        if tree.is_in_source:
            of = shutil.copytree(source, directory)
        _run(["cmake", "-S", of, "-B", directory, *_OPTIONS, *chosen, *tree.options], directory)
    command = ["cmake", "--build", str(steered), f"-j{asked.jobs}"]
    began_s = _children_s()
    _run([*command[:2], plain, *command[3:]], plain)
    plain_s = _children_s() - began_s
    with Terminal() as terminal:
        found = steered_build.build(
            steered_build.Build(command, asked.policy, [asked.compiler], plain, quiet=True),
            terminal,
        )
    if found["status"]:
        raise UserError(f"expected it to build, found exit status {found['status']}")
    cpu_over_plain = (_children_s() - began_s - plain_s) / plain_s
    return {"project": name, "cpu_over_plain": cpu_over_plain, **found}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def to_table(projects: Sequence[dict[str, Any]]) -> str:
    """Return one row for each image that is in both builds."""
    rows = [
        [
            one["project"],
            pathlib.Path(image["path"]).name,
            f"{one['steered']} of {one['compiles']}",
            *(f"{-saving_percent(image, parts):+.2f}%" for parts in PARTS.values()),
        ]
        for one in projects
        for image in one["images"]
        if "default_text_bytes" in image
    ]
    return markdown_table(["project", "image", "compiles steered", *PARTS], rows)


def parse_arguments(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", required=True, metavar="DIR|NAME")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    default = next((one for one in _COMPILERS if shutil.which(one)), "clang")
    parser.add_argument("--compiler", default=default, help="a clang from LLVM 19 on")
    parser.add_argument(
        "--project", action="append", choices=sorted(TREES), help="only these; repeatable"
    )
    parser.add_argument(
        "--source", action="append", default=[], type=pathlib.Path, help="a CMake project"
    )
    parser.add_argument(
        "--option", action="append", default=[], help="one of CMake's options, for --source"
    )
    parser.add_argument("--cache", type=pathlib.Path, default=default_cache("sdists"))
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    return parser.parse_args(None if arguments is None else list(arguments))


def sources(asked: argparse.Namespace) -> Iterator[tuple[str, pathlib.Path, Tree]]:
    """Unpack the projects one after another; yield their names, sources, and how to build them.

    Raises:
      UserError: a project cannot be downloaded or unpacked.
    """
    names = asked.project or ([] if asked.source else sorted(TREES))
    projects = {one.name: one for one in read_projects() if one.name in names}
    files, errors = download_all(projects, asked.cache)
    if errors:
        raise UserError("; ".join(errors))
    for name in names:
        tree = TREES[name]
        unpacked = asked.output / name / "source"
        shutil.rmtree(unpacked, ignore_errors=True)
        whole = dataclasses.replace(projects[name], root="", files={})
        root = extract(whole, files[name], unpacked)
        for missing in tree.missing:
            (root / missing).parent.mkdir(exist_ok=True)
            (root / missing).touch()
        yield name, (root / tree.root).absolute(), tree
    for source in asked.source:
        yield source.resolve().name, source.resolve(), Tree(tuple(asked.option))


def run(asked: argparse.Namespace) -> None:
    """Build the projects, and print the table; raise UserError if one cannot be built."""
    if shutil.which("cmake") is None:
        raise UserError("expected cmake, found none; install it: apt-get install cmake")
    if reason := why_no_plugins(asked.compiler):
        raise UserError(reason)
    asked.output.mkdir(parents=True, exist_ok=True)
    found, failures = [], []
    for name, source, tree in sources(asked):
        try:
            found.append(build_twice(name, source, tree, asked))
        except UserError as error:
            failures.append(f"{name}: {error}")
    (asked.output / "builds.json").write_text(json.dumps(found, indent=2) + "\n")
    if found:
        print(to_table(found))
    for one in found:
        print(f"{one['project']}: {one['cpu_over_plain']:.3f} of the plain build's processor time")
    if failures:
        raise UserError("; ".join(failures))


def main() -> int:
    """Run the tool; report errors of the user in one line."""
    return running.exit_status(run, parse_arguments())


if __name__ == "__main__":
    sys.exit(main())
