"""Make the bitcode of units: compile them in parallel, or reuse bitcode that is up to date."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.corpus.bitcode_compilers import (
    BitcodeCompiler,
    CompilerProcesses,
    CompilerRun,
)
from environments.inlining.corpus.compile_options import Group, read_refusals, without_options
from environments.inlining.corpus.units import BitcodeUnit, CompileUnit, NotCompiled, Unit

# The largest sources that people compile, such as tables of data, are smaller.
_MAX_SOURCE_BYTES = 1 << 28
# Each run without the options that the last one refused; the embedded compiler names one at a time.
_MAX_RUNS = 100
# Clang lists the headers that it reads in the file that follows. `-MD -MF` would not do: with them,
# the embedded compiler writes the list but no bitcode.
_LIST_HEADERS = ("-Xclang", "-header-include-file", "-Xclang")

Progress = Callable[[int, int, str], None]
"""(sources done, sources in all, name of the one just done) -> None."""


@dataclasses.dataclass(frozen=True)
class BitcodeFacts:
    """Facts about one module.

    Attributes:
        sha256: hash of the file.
        source: the source file that the bitcode names.
        functions: number of functions that the module defines.
        size_bytes: size of the file.
    """

    sha256: str
    source: str
    functions: int
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class Made:
    """The result of one unit: a bitcode file and its facts, or an error.

    Attributes:
        path: the bitcode file; None if there is an error.
        facts: about the bitcode; None if there is an error.
        error: first error line of the compiler; "" on success.
        reused: whether the bitcode is that of an earlier build, because nothing has changed.
        key: hash of everything that determines the bitcode; "" for a unit that is a bitcode file.
        dependencies: source and headers, relative to the directory where the compiler runs.
    """

    unit: Unit
    path: pathlib.Path | None = None
    facts: BitcodeFacts | None = None
    error: str = ""
    reused: bool = False
    key: str = ""
    dependencies: tuple[str, ...] = ()


class Maker:
    """Makes the bitcode of units, in threads that each wait for a compiler process."""

    def __init__(
        self,
        output: pathlib.Path,
        scratch: pathlib.Path,
        compiler: BitcodeCompiler | None,
        timeout_s: float,
        old: Mapping[str, Mapping[str, Any]],
    ):
        self._output = output
        self._scratch = scratch
        self._compiler = compiler
        self._timeout_s = timeout_s
        self._old = old
        self._processes = CompilerProcesses()
        self._hash_lock = threading.Lock()
        self._hashes: dict[pathlib.Path, str] = {}
        # Options that the compiler refuses from every source: others need not try them.
        self._refused: frozenset[Group] = frozenset()

    def make_all(self, units: Sequence[Unit], jobs: int, progress: Progress | None) -> list[Made]:
        """Make the bitcode of every unit; the results are in the order of the units."""
        executor = concurrent.futures.ThreadPoolExecutor(jobs)
        try:
            futures = {
                executor.submit(self._make, number, unit): unit for number, unit in enumerate(units)
            }
            done = concurrent.futures.as_completed(futures)
            for count, future in enumerate(done, start=1):
                future.result()
                if progress is not None:
                    progress(count, len(units), futures[future].name)
            return [future.result() for future in futures]
        finally:
            self._processes.close()
            executor.shutdown(cancel_futures=True)

    def _make(self, number: int, unit: Unit) -> Made:
        if isinstance(unit, BitcodeUnit):
            return self._checked(Made(unit, unit.path))
        if isinstance(unit, NotCompiled):
            return Made(unit, error=unit.error)
        reused = self._reuse(unit)
        if reused is None and (error := _why_unreadable(unit)):
            return Made(unit, error=error)
        return reused or self._compile(unit, self._scratch / str(number))

    def _compile(self, unit: CompileUnit, scratch: pathlib.Path) -> Made:
        """Compile a unit with the first argument set that works; else tell the first error."""
        assert self._compiler is not None
        scratch.mkdir()
        bitcode, headers = scratch / "module.bc", scratch / "headers"
        error = ""
        for arguments in unit.argument_sets:
            run = self._run_without_refused(unit, arguments, scratch)
            if not run.error:
                dependencies = _read_dependencies(headers, unit, self._compiler)
                key = self._key(unit, dependencies)
                return self._checked(Made(unit, bitcode, key=key, dependencies=dependencies))
            error = error or run.error
        return Made(unit, error=error)

    def _run_without_refused(
        self, unit: CompileUnit, arguments: tuple[str, ...], scratch: pathlib.Path
    ) -> CompilerRun:
        """Compile a unit; leave out the options that the compiler refuses, until it refuses none.

        What is left out depends on the compiler, the unit and its options only: the key of the
        unit need not name it.
        """
        run = CompilerRun("")
        for _ in range(_MAX_RUNS):
            arguments = without_options(arguments, self._refused)
            run = self._run(unit, arguments, scratch)
            refusals = read_refusals(run.messages, arguments) if run.error else []
            if not refusals:
                return run
            # Threads may overwrite each other's additions, which are then made again.
            self._refused |= {refusal.group for refusal in refusals if refusal.always}
            arguments = without_options(arguments, {refusal.group for refusal in refusals})
        return run

    def _run(
        self, unit: CompileUnit, arguments: tuple[str, ...], scratch: pathlib.Path
    ) -> CompilerRun:
        """Run the compiler once; it writes module.bc and a list of headers to `scratch`."""
        assert self._compiler is not None
        bitcode, headers = scratch / "module.bc", scratch / "headers"
        command = self._compiler.command(
            unit.language,
            (*arguments, *_LIST_HEADERS, str(headers), f"-ffile-prefix-map={unit.root}=."),
            unit.source,
            bitcode,
        )
        headers.unlink(missing_ok=True)
        temporary = scratch / "temporary"
        temporary.mkdir()
        run = self._processes.run(command, unit.directory, temporary, self._timeout_s)
        shutil.rmtree(temporary, ignore_errors=True)
        if not run.error and not bitcode.is_file():
            return CompilerRun("the compiler wrote no bitcode")
        return run

    def _checked(self, result: Made) -> Made:
        """Add the facts about the bitcode; if LLVM cannot read it, return an error instead."""
        assert result.path is not None
        try:
            return dataclasses.replace(result, facts=_read_facts(result.path))
        except UserError as error:
            return Made(result.unit, error=str(error))

    def _reuse(self, unit: CompileUnit) -> Made | None:
        """Return the module of an earlier build; None if something that determines it changed."""
        old = self._old.get(unit.name)
        path = self._output / f"{unit.name}.bc"
        if old is None or not path.is_file():
            return None
        dependencies = tuple(old["dependencies"])
        facts = BitcodeFacts(**old["facts"])
        if self._key(unit, dependencies) != old["key"] or self._hash(path) != facts.sha256:
            return None
        return Made(unit, path, facts, "", True, old["key"], dependencies)

    def _key(self, unit: CompileUnit, dependencies: Iterable[str]) -> str:
        """Return a hash of everything that determines the bitcode of a unit."""
        assert self._compiler is not None
        parts = [
            self._compiler.version,
            *self._compiler.flags,
            unit.language,
            unit.source,
            *(option for arguments in unit.argument_sets for option in (*arguments, "")),
            *(f"{path} {self._hash(unit.directory / path)}" for path in dependencies),
        ]
        return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()

    def _hash(self, path: pathlib.Path) -> str:
        """Return a file's content hash, "" if it cannot be read; a build reads it only once."""
        with self._hash_lock:
            if path not in self._hashes:
                with contextlib.suppress(OSError):
                    self._hashes[path] = files.sha256(path)
            return self._hashes.get(path, "")


def _read_facts(path: pathlib.Path) -> BitcodeFacts:
    """Read the facts about a bitcode file with the LLVM of llvmlite.

    Raises:
        UserError: if the file cannot be read, or is not bitcode that this LLVM understands.
    """
    from llvmlite import binding as llvm

    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise UserError(f"expected to read {path}, found: {error.strerror}") from None
    try:
        module = llvm.parse_bitcode(data, llvm.create_context())
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        version = ".".join(map(str, llvm.llvm_version_info))
        raise UserError(
            f"expected bitcode that LLVM {version} reads in {path}, found: {reason}; "
            "compile it again, with a clang that is not newer"
        ) from None
    functions = sum(not function.is_declaration for function in module.functions)
    try:
        source = module.source_file
    except UnicodeDecodeError as error:
        source = error.object.decode(errors="replace")
    return BitcodeFacts(hashlib.sha256(data).hexdigest(), source, functions, len(data))


def _why_unreadable(unit: CompileUnit) -> str:
    """Return why a compiler should not begin to read a source; "" if nothing is wrong."""
    remedy = "run the build that makes it, then build the corpus again"
    if not files.is_directory(unit.directory):
        return f"expected the directory {unit.directory}, found none; {remedy}"
    source = unit.directory / unit.source
    if files.is_directory(source):
        return f"expected the source {unit.source}, found a directory"
    if not files.exists(source):
        return f"expected the source {unit.source}, found none; {remedy}"
    size_bytes = source.stat().st_size if files.is_file(source) else 0
    if size_bytes <= _MAX_SOURCE_BYTES:
        return ""
    return f"expected a source of at most {_MAX_SOURCE_BYTES:,} bytes, found {size_bytes:,}"


def _read_dependencies(
    path: pathlib.Path, unit: CompileUnit, compiler: BitcodeCompiler
) -> tuple[str, ...]:
    """Return a unit's source and headers, relative to the directory where the compiler runs.

    Headers of the compiler or the system are left out: the compiler's version stands for them.
    """
    lines = path.read_text(errors="surrogateescape").splitlines() if path.is_file() else []
    names = lines
    if unit.directory.resolve() == unit.directory:  # Behind a link, ".." leads elsewhere.
        names = [os.path.relpath(unit.directory / line, unit.directory) for line in lines]
    own = [
        name
        for name, line in zip(names, lines, strict=True)
        if not line.startswith(compiler.system_directories)
    ]
    return tuple(dict.fromkeys((unit.source, *sorted(own))))
