"""Makes the bitcode of units: compiles them in parallel, or finds that nothing has changed."""

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

from environments.errors import UserError
from environments.inlining.corpus.bitcode import BitcodeFacts, read_facts
from environments.inlining.corpus.bitcode_compilers import BitcodeCompiler, CompilerProcesses
from environments.inlining.corpus.units import BitcodeUnit, CompileUnit, Unit

Progress = Callable[[int, int, str], None]
"""(sources done, sources in all, name of the one just done) -> None."""


@dataclasses.dataclass(frozen=True)
class Made:
    """One unit's result: a bitcode file and its facts, or an error.

    Attributes:
        unit: what it was made from.
        path: the bitcode file, None where there is an error.
        facts: what the bitcode says of itself.
        error: first error line of the compiler, "" on success.
        reused: whether it is that of an earlier build, because nothing has changed.
        key: hash of all that decided it, "" for bitcode that was taken over.
        dependencies: source and headers, relative to where it is compiled.
    """

    unit: Unit
    path: pathlib.Path | None = None
    facts: BitcodeFacts | None = None
    error: str = ""
    reused: bool = False
    key: str = ""
    dependencies: tuple[str, ...] = ()


class Maker:
    """Makes units' bitcode, in threads that each wait for a compiler process."""

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

    def make_all(self, units: Sequence[Unit], jobs: int, progress: Progress | None) -> list[Made]:
        """Makes every unit; results in the units' order whatever the number of jobs."""
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
        reused = self._reuse(unit)
        return reused or self._compile(unit, self._scratch / str(number))

    def _compile(self, unit: CompileUnit, scratch: pathlib.Path) -> Made:
        """Tries the unit's argument sets in turn; the first error of the first set is reported."""
        compiler = self._compiler
        assert compiler is not None
        scratch.mkdir()
        bitcode, dependencies = scratch / "module.bc", scratch / "headers"
        error = ""
        for arguments in unit.argument_sets:
            command = compiler.command(
                unit.language,
                (*arguments, *_list_headers(dependencies), f"-ffile-prefix-map={unit.root}=."),
                unit.source,
                bitcode,
            )
            temporary = scratch / "temporary"
            temporary.mkdir()
            run = self._processes.run(command, unit.directory, temporary, self._timeout_s)
            shutil.rmtree(temporary, ignore_errors=True)
            if not run.error:
                read = _read_dependencies(dependencies, unit, compiler)
                key = self._key(unit, read)
                return self._checked(Made(unit, bitcode, key=key, dependencies=read))
            error = error or run.error
        return Made(unit, error=error)

    def _checked(self, made: Made) -> Made:
        """Reads the bitcode; what LLVM cannot read becomes an error."""
        assert made.path is not None
        try:
            return dataclasses.replace(made, facts=read_facts(made.path))
        except UserError as error:
            return Made(made.unit, error=str(error))

    def _reuse(self, unit: CompileUnit) -> Made | None:
        """The module of an earlier build, if nothing that it was made from changed."""
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
        """Hash of all that decides what a unit compiles to."""
        assert self._compiler is not None
        parts = [
            self._compiler.version,
            *self._compiler.flags,
            unit.language,
            unit.source,
            *(option for arguments in unit.argument_sets for option in (*arguments, "")),
            *(f"{path} {self._hash(unit.directory / path)}" for path in dependencies),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _hash(self, path: pathlib.Path) -> str:
        """Content hash of a file, "" where there is none; each file is read once in a build."""
        with self._hash_lock:
            if path not in self._hashes:
                with contextlib.suppress(OSError):
                    self._hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            return self._hashes.get(path, "")


def _list_headers(path: pathlib.Path) -> tuple[str, ...]:
    """Options that have clang list the headers it reads.

    It is not `-MD -MF`, with which the embedded compiler writes the list and no bitcode.
    """
    return ("-Xclang", "-header-include-file", "-Xclang", str(path))


def _read_dependencies(
    path: pathlib.Path, unit: CompileUnit, compiler: BitcodeCompiler
) -> tuple[str, ...]:
    """The unit's source and headers, relative to where it is compiled.

    Headers that come with the compiler or the system are left out: its version stands for them.
    """
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    files = [os.path.relpath(unit.directory / line, unit.directory) for line in lines]
    own = [
        file
        for file, line in zip(files, lines, strict=True)
        if not line.startswith(compiler.system_directories)
    ]
    return tuple(dict.fromkeys((unit.source, *sorted(own))))
