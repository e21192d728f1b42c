"""Make the benchmark corpus from pinned, checksummed source distributions of C and C++ projects.

    python -m tools.fetch_corpus -o runs/corpus

writes four corpora: `runs/corpus/train`, `validation` and `heldout`, each made of whole projects,
and `all`, which holds every module (the others are hard links into it). `corpus_projects.json`
lists the projects with their versions, sources and options. The projects' names alone decide which
of them are held out (see `split_projects`).

    python -m tools.fetch_corpus -o runs/whole --whole --language c++ --compiler clang-22 \
        --option=-fPIC

takes all sources of each project, not a sample of them, and compiles them as people build shared
libraries. A policy is judged by whole linked projects, so it should learn from whole projects.

The distributions come from the package index that pip is configured to use (`distributions`).
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import pathlib
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from environments.errors import UserError
from environments.inlining.corpus.bitcode_compilers import EMBEDDED, find_compiler
from environments.inlining.corpus.building import BuildReport, build_units, write_subset
from environments.inlining.corpus.modules import Corpus, describe, language_of
from environments.inlining.corpus.units import CompileUnit
from tools import running
from tools.distributions import Distribution, default_cache, download_all

PROJECTS_FILE = pathlib.Path(__file__).with_name("corpus_projects.json")
SPLITS = ("train", "validation", "heldout")
# How many projects of each language are held out, and how many are used for validation.
DRAWN = {"c++": {"heldout": 3, "validation": 3}, "c": {"heldout": 2, "validation": 1}}
# A project with fewer sources says little about a policy, so it is always trained on.
SMALLEST_DRAWN = 10
COMPILE_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project(Distribution):
    """One entry of corpus_projects.json: a source distribution, and what of it is compiled.

    Attributes:
        name: name of the project; the first component of its modules' names.
        language: "c" or "c++".
        root: directory inside the distribution, in which the compiler runs.
        sources: globs of the sources, relative to the root.
        exclude: patterns of sources to leave out (other platforms, tests, Python bindings).
        include: include directories, relative to the root.
        defines: macros to define.
        standard: language standard, as in -std.
        files: lines of small headers that the project's own build would generate, by path.
        max_sources: number of sources to compile at most, None for all; if more match, those are
            taken whose "name/path" has the smallest sha256.
    """

    name: str
    language: str
    root: str
    sources: tuple[str, ...]
    standard: str
    max_sources: int | None
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    files: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


def read_projects() -> tuple[Project, ...]:
    """Read the pinned projects."""
    return tuple(Project(**entry) for entry in json.loads(PROJECTS_FILE.read_text())["projects"])


def digest(text: str) -> str:
    """Return the hash by which projects and sources are drawn; it is unrelated to any result."""
    return hashlib.sha256(text.encode()).hexdigest()


def split_projects(sizes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Decide which projects are trained on, validated on and held out.

    The projects of each language with at least `SMALLEST_DRAWN` sources are sorted by the sha256 of
    their name. The first are held out, and the next are for validation, as many as `DRAWN` says.
    All others are trained on.

    Args:
        sizes: number of sources, by language and by project.

    Returns:
        "train", "validation" or "heldout", by project.
    """
    split = {}
    for language, projects in sizes.items():
        split.update(dict.fromkeys(projects, "train"))
        large = [name for name, sources in projects.items() if sources >= SMALLEST_DRAWN]
        drawn = iter(sorted(large, key=digest))
        for part in ("heldout", "validation"):
            for _, name in zip(range(DRAWN[language][part]), drawn, strict=False):
                split[name] = part
    return split


def extract(project: Project, file: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
    """Unpack a project's root, add its `files`, and return the directory of the root."""
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        top = members[0].name.split("/")[0]
        root = pathlib.PurePosixPath(top, project.root)
        wanted = [
            member
            for member in members
            if root in pathlib.PurePosixPath(member.name).parents and not member.islnk()
        ]
        try:
            # The filter keeps members, and what links point to, inside the directory.
            archive.extractall(directory, wanted, filter="data")
        except tarfile.TarError as error:
            raise UserError(f"expected to unpack {file.name}, found: {error}") from None
    for name, lines in project.files.items():
        path = directory / root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    return directory / root


def project_units(
    project: Project,
    root: pathlib.Path,
    more_options: Sequence[str] = (),
    most: int | None = None,
) -> list[CompileUnit]:
    """Return what to compile of a project unpacked in `root`: at most `max_sources` sources.

    If `most` is not None, they are the first of them, in the order in which they are drawn.
    """
    fit = fitting_sources(project, root)
    drawn = sorted(fit, key=lambda path: digest(f"{project.name}/{path}"))[: project.max_sources]
    options = (
        f"-std={project.standard}",
        *(f"-I{path}" for path in project.include),
        *(f"-D{macro}" for macro in project.defines),
        *more_options,
    )
    return [
        CompileUnit(f"{project.name}/{path}", path, root, root, project.language, (options,))
        for path in sorted(drawn[:most])
    ]


def fitting_sources(project: Project, root: pathlib.Path) -> list[str]:
    """Return all sources of a project unpacked in `root`, relative to it."""
    paths = {
        path.relative_to(root).as_posix()
        for pattern in project.sources
        for path in root.glob(pattern)
        if language_of(path) == project.language
    }
    return sorted(
        path
        for path in paths
        if not any(fnmatch.fnmatchcase(path, pattern) for pattern in project.exclude)
    )


def build(
    projects: Sequence[Project],
    files: Mapping[str, pathlib.Path],
    output: pathlib.Path,
    compiler: str,
    jobs: int | None,
    options: Sequence[str] = (),
    most: int | None = None,
) -> BuildReport:
    """Compile the projects from their distributions `files`, and write the corpora.

    `options` are given to the compiler after each project's own. If `most` is not None, no more
    sources of a project are compiled; what each project is for does not change.
    """
    bitcode_compiler = find_compiler(compiler)
    output.mkdir(parents=True, exist_ok=True)
    units: dict[str, list[CompileUnit]] = {}
    num_sources: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix=".sources-", dir=output) as unpacked:
        for project in projects:
            root = extract(project, files[project.name], pathlib.Path(unpacked, project.name))
            units[project.name] = project_units(project, root.absolute(), options, most)
            num_sources[project.name] = len(fitting_sources(project, root))
        every = [unit for name in sorted(units) for unit in units[name]]
        how = jobs, _show, COMPILE_TIMEOUT_S
        report = build_units(every, output / "all", bitcode_compiler, *how, num_sources)
    sizes: dict[str, dict[str, int]] = {"c++": {}, "c": {}}
    for project in projects:
        fitting = num_sources[project.name]
        sizes[project.language][project.name] = min(fitting, project.max_sources or fitting)
    split = split_projects(sizes)
    corpus = Corpus.load(output / "all")
    for part in SPLITS:
        mine = [name for name in corpus.projects if split[name] == part]
        if mine:
            write_subset(corpus.select(mine), output / part)
    return report


def _show(done: int, total: int, name: str) -> None:
    """Show progress: on a terminal one line that is rewritten, in a log a line now and then."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {done}/{total} {name}"[:120], end="", file=sys.stderr, flush=True)
    elif done % 50 == 0 or done == total:
        print(f"  {done}/{total} compiled", file=sys.stderr, flush=True)


def parse_arguments(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("runs/corpus"))
    parser.add_argument("--cache", type=pathlib.Path, default=default_cache("sdists"))
    parser.add_argument("--compiler", default=EMBEDDED, help="embedded, or a clang >= 17")
    parser.add_argument(
        "--option", action="append", default=[], help="for the compiler; repeatable"
    )
    parser.add_argument("--whole", action="store_true", help="all sources of each project")
    parser.add_argument("--sources", type=int, metavar="N", help="at most N of each project")
    parser.add_argument("--language", choices=("c", "c++"), help="only projects of this language")
    parser.add_argument("--jobs", type=int, help="compilers at a time; one for each processor")
    parser.add_argument("--project", action="append", help="only these projects; repeatable")
    return parser.parse_args(None if arguments is None else list(arguments))


def run(arguments: argparse.Namespace) -> None:
    """Download, compile and describe the corpus; raise UserError if a project is missing."""
    projects = read_projects()
    if arguments.sources is not None and arguments.sources < 1:
        raise UserError(f"--sources: expected 1 or more, found {arguments.sources}")
    if arguments.project:
        unknown = sorted(set(arguments.project) - {project.name for project in projects})
        if unknown:
            names = ", ".join(project.name for project in projects)
            raise UserError(f"expected projects among {names}, found {', '.join(unknown)}")
        projects = tuple(project for project in projects if project.name in arguments.project)
    if arguments.language:
        projects = tuple(project for project in projects if project.language == arguments.language)
    if arguments.whole:
        projects = tuple(dataclasses.replace(project, max_sources=None) for project in projects)
    # Not made from fewer, because figures would not compare.
    files = download_all({project.name: project for project in projects}, arguments.cache)
    how = arguments.compiler, arguments.jobs, arguments.option
    report = build(projects, files, arguments.output, *how, arguments.sources)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for failure in report.not_compiled:
        print(f"not compiled: {failure.name}: {failure.error}", file=sys.stderr)
    for part in SPLITS:
        if (arguments.output / part).is_dir():
            facts = describe(Corpus.load(arguments.output / part))
            languages = ", ".join(f"{count} {name}" for name, count in facts["languages"].items())
            named = ", ".join(project["project"] for project in facts["projects"])
            print(f"{part}: {facts['modules']} modules ({languages}) of {named}")
    print(f"{report.modules} modules in {arguments.output} after {report.seconds:.0f} s")


def main() -> int:
    """Run the tool; report errors of the user and of the network in one line."""
    return running.exit_status(run, parse_arguments())


if __name__ == "__main__":
    sys.exit(main())
