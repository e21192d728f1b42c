"""CMake projects at the rungs of a ladder of options: how they are configured, built and run."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from environments.errors import UserError
from environments.inlining.linking.images import PARTS
from tfrl_systems.reporting import Terminal
from tfrl_systems.systems.inlining.building import steered_build
from tools.distributions import default_cache, download_all
from tools.fetch_corpus import extract, read_projects

_DRIVERS = pathlib.Path(__file__).with_name("drivers")
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
# Probes of CMake are compiled for no configuration, so they are the same on every rung.
_CONFIGURATION = "MINSIZEREL"
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=MinSizeRel",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",  # for projects older than today's CMake
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",  # or images would hold the length of their directory
)
# Runs a build with its output in a file; the other words stay words, of which the build's
# directory is one.
_LOGGED = ("sh", "-c", 'log=$1; shift; exec "$@" >>"$log" 2>&1', "sh")


class Rung(NamedTuple):
    """What a rung adds to -Oz and lld: options of clang, for compiling and for linking."""

    compiling: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()


_SECTIONS = ("-ffunction-sections", "-fdata-sections")
_FOLDING = ("-Wl,--gc-sections", "-Wl,--icf=all")
_NO_TABLES = ("-fno-unwind-tables", "-fno-asynchronous-unwind-tables")
# The first is what people who care for size do.
RUNGS = {
    "gc-icf": Rung(_SECTIONS, _FOLDING),
    "plain": Rung(),
    "no-tables": Rung((*_SECTIONS, *_NO_TABLES), _FOLDING),
}


class Tree(NamedTuple):
    """How to build a project with CMake, and how to compile drivers/PROJECT.cpp for it.

    Attributes:
      library: how the name of the image begins that the driver is linked to.
      standard: of C++, for the driver.
      include: directory of headers in the sources; those of the build's directory come along.
      options: options of CMake.
      root: where CMakeLists.txt is, in the distribution.
      missing: files that CMake asks for; empty ones will do.
      is_in_source: whether it writes its images beside its sources, so that it is built there.
    """

    library: str
    standard: str
    include: str
    options: tuple[str, ...] = ()
    root: str = "."
    missing: tuple[str, ...] = ()
    is_in_source: bool = False


TREES = {
    "highs": Tree(
        library="libhighs.so",
        standard="c++17",
        include="highs",
        options=(
            *("-DFAST_BUILD=ON", "-DBUILD_TESTING=OFF", "-DBUILD_EXAMPLES=OFF"),
            *("-DBUILD_CXX_EXE=OFF", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"),
        ),
        missing=("highs.pc.in", "app/CMakeLists.txt"),
    ),
    "lightgbm": Tree(
        library="lib_lightgbm.so",
        standard="c++17",
        include="include",
        options=("-DUSE_OPENMP=OFF", "-DBUILD_CLI=OFF"),
        is_in_source=True,
    ),
    "zxing": Tree(
        library="libZXing.so",
        standard="c++20",
        include="src",
        # OLD has writers in C++; those that are new are a library in C.
        options=("-DZXING_WRITERS=OLD",),
        root="core",
    ),
}


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A clang and the programs beside it.

    Attributes:
      clang: a path, or a name on PATH.
    """

    clang: str

    @property
    def c(self) -> pathlib.Path:
        """Path of the compiler of C."""
        return pathlib.Path(shutil.which(self.clang) or self.clang)

    @property
    def cxx(self) -> pathlib.Path:
        """Path of the compiler of C++."""
        return self.c.with_name(self.c.name.replace("clang", "clang++", 1))

    def tool(self, name: str) -> str:
        """Return the path of a program of the same LLVM, such as llvm-ar; "" if there is none."""
        command = [str(self.c), f"-print-prog-name={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return shutil.which(done.stdout.strip()) or ""

    def why_no_rungs(self) -> str:
        """Return what is missing and the remedy; "" if it can build every rung."""
        for program, package in (("ld.lld", "lld"), ("llvm-ar", "llvm"), ("llvm-ranlib", "llvm")):
            if not self.tool(program):
                major = self.c.name.rpartition("-")[2]
                suffix = f"-{major}" if major.isdecimal() else ""
                return (
                    f"expected {program} beside {self.clang}, found none; install it: "
                    f"apt-get install {package}{suffix}"
                )
        return ""


@dataclasses.dataclass(frozen=True)
class Build:
    """One build of a project.

    Attributes:
      project: its name; only its messages and its driver go by it.
      source: directory of its CMakeLists.txt.
      directory: where it is built; its sources, if it is built in them.
      log: file that gets what CMake and the compilers say.
    """

    project: str
    tree: Tree
    source: pathlib.Path
    directory: pathlib.Path
    log: pathlib.Path
    compiler: Compiler

    def configure(self, rung: Rung, threshold: int | None) -> None:
        """Configure it for a rung, and a value of LLVM's -inline-threshold or None for its own.

        Raises:
          UserError: CMake does not succeed.
        """
        chosen = {
            "CMAKE_C_COMPILER": self.compiler.c,
            "CMAKE_CXX_COMPILER": self.compiler.cxx,
            "CMAKE_AR": self.compiler.tool("llvm-ar"),
            "CMAKE_RANLIB": self.compiler.tool("llvm-ranlib"),
            **definitions(rung, threshold, dict.fromkeys((self.source, self.directory), ".")),
        }
        defined = [f"-D{name}={value}" for name, value in chosen.items()]
        places = ["-S", self.source, "-B", self.directory]
        self.run("cmake", *places, *_OPTIONS, *defined, *self.tree.options)

    def run(self, *command: object) -> None:
        """Run a command that has to succeed.

        Raises:
          UserError: it does not.
        """
        words = [*_LOGGED, str(self.log), *map(str, command)]
        self._check(subprocess.run(words, check=False).returncode, str(command[0]))

    def _check(self, status: int, program: str) -> None:
        if status:
            raise UserError(
                f"{self.project}: expected {program} to end well, found exit status {status}; "
                f"see {self.log}"
            )

    def make(self, policy: str, processes: int) -> dict[str, Any]:
        """Build it with a policy inside its clang, so many processes at a time.

        Returns:
          `images`: sizes in bytes by name of the image, from the build's directory; `cpu_s`: the
          processor time; `steered` and `compiles`: how many compiles the policy decided, of how
          many.

        Raises:
          UserError: it cannot be built.
        """
        command = [*_LOGGED, str(self.log), "cmake", "--build", str(self.directory)]
        clang = (self.compiler.clang,)
        with Terminal() as terminal:
            # The plugin is built once, and not on this build's account.
            steered_build.build(steered_build.Build(["true"], policy, clang), terminal)
            began_s = children_s()
            built = steered_build.build(
                steered_build.Build([*command, f"-j{processes}"], policy, clang), terminal
            )
        cpu_s = children_s() - began_s
        self._check(built["status"], "cmake --build")
        return {
            "images": dict(_images_below(self.directory, built["images"])),
            "cpu_s": cpu_s,
            **{name: built[name] for name in ("steered", "compiles")},
        }

    def count_instructions(self, images: Sequence[str]) -> int | None:
        """Return how many instructions the project's driver executes, the library's included.

        Args:
          images: names of the images, from the build's directory.

        Returns:
          The number; None if valgrind is not installed.

        Raises:
          UserError: the driver cannot be compiled, or found that the library is wrong.
        """
        if shutil.which("valgrind") is None:
            return None
        tree = self.tree
        name = next(
            (name for name in images if pathlib.Path(name).name.startswith(tree.library)), ""
        )
        library, program = self.directory / name, self.log.with_name("driver")
        self.run(
            *(self.compiler.cxx, "-O2", f"-std={tree.standard}", "-Wno-deprecated-declarations"),
            *(f"-I{self.source / tree.include}", f"-I{self.directory}"),
            *(_DRIVERS / f"{self.project}.cpp", library, f"-Wl,-rpath,{library.parent}"),
            *("-o", program),
        )
        counts = self.log.with_name("callgrind.out")
        self.run("valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", program)
        totals = _TOTALS.search(counts.read_text(encoding="utf-8"))
        return int(totals[1]) if totals else None


def definitions(
    rung: Rung, threshold: int | None, prefixes: Mapping[pathlib.Path, str]
) -> dict[str, str]:
    """Return CMake's variables for the options of a rung.

    Args:
      rung: the rung.
      threshold: LLVM's -inline-threshold; None for what LLVM chooses itself.
      prefixes: directory -> what images are to hold in its place, so that where a project is built
        does not change their size.
    """
    compiling = ["-Oz", "-DNDEBUG", *rung.compiling]
    compiling += [f"-ffile-prefix-map={path}={text}" for path, text in prefixes.items()]
    if threshold is not None:
        compiling += ["-mllvm", f"-inline-threshold={threshold}"]
    linking = shlex.join(["-fuse-ld=lld", *rung.linking])
    flags = {f"CMAKE_{language}_FLAGS": shlex.join(compiling) for language in ("C", "CXX")}
    flags |= {f"CMAKE_{kind}_LINKER_FLAGS": linking for kind in ("SHARED", "MODULE", "EXE")}
    return {f"{name}_{_CONFIGURATION}": words for name, words in flags.items()}


def unpack(name: str, directory: pathlib.Path) -> pathlib.Path:
    """Download and unpack a project of `TREES`; return the directory of its CMakeLists.txt."""
    (project,) = (project for project in read_projects() if project.name == name)
    downloaded = download_all({name: project}, default_cache("sdists"))
    shutil.rmtree(directory, ignore_errors=True)
    root = extract(dataclasses.replace(project, root="", files={}), downloaded[name], directory)
    for missing in TREES[name].missing:
        (root / missing).parent.mkdir(exist_ok=True)
        (root / missing).touch()
    return (root / TREES[name].root).absolute()


def _images_below(
    directory: pathlib.Path, images: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the names and sizes of images; a build may have left some elsewhere."""
    for image in images:
        path = pathlib.Path(image["path"]).resolve()
        if path.is_relative_to(directory.resolve()):
            name = path.relative_to(directory.resolve()).as_posix()
            yield name, {size: image[size] for size in PARTS}


def children_s() -> float:
    """Return the processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
