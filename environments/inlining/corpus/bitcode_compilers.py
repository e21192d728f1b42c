"""Compilers that turn C and C++ sources into bitcode: one on PATH, or the embedded one.

The bitcode is what clang hands to LLVM's passes at -Oz, before the first pass: every function
carries minsize and optsize, and all inlining is still to be decided. The embedded compiler is the
clang of the `ziglang` wheel. Its driver has defaults that would change every size (sanitizers, -Os,
the machine's own processor, frame pointers); the flags in this file undo them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from environments.errors import UserError
from environments.isolation import guardian

EMBEDDED = "embedded"
OLDEST_CLANG = 17
_TO_BITCODE = ("-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c")
_QUIET = ("-w", "-fno-color-diagnostics", "-fno-caret-diagnostics")
_VERSION_TIMEOUT_S = 60.0
_MAX_MESSAGE_BYTES = 1_000_000
_ERROR = re.compile(r"(?:fatal )?error: .*")


@dataclasses.dataclass(frozen=True)
class BitcodeCompiler:
    """A clang that makes bitcode.

    Attributes:
        version: first line of `--version`; part of the key under which results are kept.
        c, cxx: commands that compile C and C++.
        flags: options that follow the source's own options and so override them.
        system_directories: path prefixes of headers that belong to the compiler or the system.
    """

    version: str
    c: tuple[str, ...]
    cxx: tuple[str, ...]
    flags: tuple[str, ...]
    system_directories: tuple[str, ...] = ("/usr/",)

    def command(
        self, language: str, arguments: Sequence[str], source: str, output: pathlib.Path
    ) -> tuple[str, ...]:
        """Return the command that compiles one source with its own options (-I, -D, -std, ...)."""
        driver = self.cxx if language == "c++" else self.c
        # A name that starts with "-" would be read as an option.
        operand = source if not source.startswith("-") else f"./{source}"
        options = (*arguments, *_QUIET, *self.flags)
        # A source may have any suffix; clang-19 may come without a clang++.
        return (*driver, *options, "-x", language, operand, "-o", str(output))


@dataclasses.dataclass(frozen=True)
class CompilerRun:
    """How one run of a compiler ended.

    Attributes:
        error: "" on success, else the first error line or how the compiler died.
        messages: what the compiler printed to stderr, or the beginning of it.
    """

    error: str
    messages: str = ""


def find_compiler(name: str = EMBEDDED) -> BitcodeCompiler:
    """Return a compiler that runs and is new enough.

    Args:
        name: "embedded", or a clang: a path or a name on PATH.

    Raises:
        UserError: if the compiler is missing, does not run, is not clang or is too old.
    """
    return _embedded() if name == EMBEDDED else _clang(name)


class CompilerProcesses:
    """Runs compilers, from any number of threads, and leaves none of their processes behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._closed = False

    def run(
        self,
        command: Sequence[str],
        directory: pathlib.Path,
        scratch: pathlib.Path,
        timeout_s: float,
    ) -> CompilerRun:
        """Run a command in a directory to its end, or kill it after `timeout_s` seconds.

        `scratch` is an existing directory for temporary files; no other run may use it.
        """
        messages = ""
        with tempfile.TemporaryFile(dir=scratch) as stderr:
            try:
                with self._lock:
                    if self._closed:
                        return CompilerRun("the build was stopped")
                    process = subprocess.Popen(
                        command,
                        cwd=directory,
                        env=_environment(scratch),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=stderr,
                        start_new_session=True,
                    )
                    self._running.add(process)
            except OSError as error:
                return CompilerRun(f"the compiler does not start: {error.strerror}")
            try:
                status = process.wait(timeout_s)
                stderr.seek(0)
                messages = stderr.read(_MAX_MESSAGE_BYTES).decode(errors="replace")
                failure = "" if status == 0 else _first_error(messages, status)
            except subprocess.TimeoutExpired:
                failure = f"took longer than {timeout_s:g} s"
            finally:
                _kill_group(process)
                with self._lock:
                    self._running.discard(process)
        return CompilerRun(failure, messages)

    def close(self) -> None:
        """Kill all compilers that still run; refuse later runs."""
        with self._lock:
            self._closed = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _embedded() -> BitcodeCompiler:
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "expected the embedded compiler (the ziglang package), found none installed; "
            "`pip install ziglang`, or name a clang >= 17 with --compiler"
        )
    directory = pathlib.Path(package.submodule_search_locations[0]).resolve()
    program = str(directory / "zig")
    flags = (
        "-target",
        "x86_64-linux-gnu",
        "-mcpu=baseline",
        "-Oz",
        "-fomit-frame-pointer",
        "-Xclang",
        *_TO_BITCODE,
        f"-ffile-prefix-map={directory}=/ziglang",
    )
    version = ask_version((program, "cc"))[0].strip()
    return BitcodeCompiler(version, (program, "cc"), (program, "c++"), flags, (f"{directory}/",))


def _clang(name: str) -> BitcodeCompiler:
    path = shutil.which(name)
    if path is None:
        raise UserError(
            f"expected a clang >= {OLDEST_CLANG}, found no program {name}; "
            f"name another, or use the compiler {EMBEDDED!r}"
        )
    version = ask_version((path,))[0].strip()
    match = re.search(r"clang version (\d{1,6})\.", version)
    if match is None or int(match[1]) < OLDEST_CLANG:
        raise UserError(
            f"expected a clang >= {OLDEST_CLANG}, found {version!r} at {path}; "
            f"name another, or use the compiler {EMBEDDED!r}"
        )
    return BitcodeCompiler(version, (path,), (path,), ("-fPIC", *_TO_BITCODE))


def ask_version(driver: Sequence[str]) -> list[str]:
    """Return the lines of `--version`.

    Raises:
      UserError: the program does not run.
    """
    try:
        # However this process ends, the guardian ends the compiler and removes what it wrote.
        with (
            guardian.make_directory() as scratch,
            subprocess.Popen(
                [*driver, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(pathlib.Path(scratch)),
                start_new_session=True,
            ) as process,
        ):
            guardian.watch(process)
            try:
                shown, _ = process.communicate(timeout=_VERSION_TIMEOUT_S)
            finally:
                guardian.kill(process)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"expected a clang that runs, found {driver[0]}: {error}; name another compiler"
        ) from None
    return shown.decode(errors="replace").splitlines() or [""]


def _environment(scratch: pathlib.Path) -> dict[str, str]:
    """Return this process's environment, without its influence on the bitcode."""
    environment = {
        name: value
        for name, value in os.environ.items()
        # Include paths and options from the user's shell would change the bitcode.
        if name not in {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"}
    }
    environment.update(
        LC_ALL="C",
        SOURCE_DATE_EPOCH="0",
        TMPDIR=str(scratch),
        ZIG_GLOBAL_CACHE_DIR=str(scratch),
        ZIG_LOCAL_CACHE_DIR=str(scratch),
    )
    return environment


def _first_error(text: str, status: int) -> str:
    """Return the first error line that a failed compiler printed, or else how it ended."""
    match = _ERROR.search(text)
    if match:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.end()]
        return line.strip()[:500]
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = text.strip().splitlines()
    return lines[0][:500] if lines else f"exit status {status}"


def _kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
