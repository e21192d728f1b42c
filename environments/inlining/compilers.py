"""Two compilers behind one small interface: the embedded LLVM, and a clang of the user's.

Both run stock LLVM in a process of its own and speak the interactive channel (`channel.py`), so
that the same policy steers either. Answering the default decision gives the bytes of a plain -Oz.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import pathlib
import resource
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from environments.errors import UserError
from environments.inlining import embedded_worker
from environments.inlining.channel import Channel
from environments.inlining.clang_probe import PROBE_IR, probe_clang
from environments.inlining.compilation import (
    Compilation,
    CompiledModule,
    CompilerError,
    Decide,
)
from environments.inlining.corpus import Module
from environments.inlining.object_size import ObjectSize

DEFAULT_TIMEOUT_S = 300.0
# At -Oz LLVM inlines below a cost of 5 and nothing else.
OZ_THRESHOLD = 5
_ADVISE = ("-enable-ml-inliner=release", "-inliner-interactive-channel-base={base}")
_NAME_CALLEES = ("-pass-remarks-missed=inline", "-pass-remarks=inline")
_INCLUDE_DEFAULT = "-inliner-interactive-include-default"


class Compiler(Protocol):
    """Compiles modules at -Oz, asking for every inlining decision.

    Attributes:
      name: short, for messages and tables.
      identity: everything that decides the bytes of an object; the key of caches.
      announced: names of the features in the header of its channel, in order.
    """

    name: str
    identity: str
    announced: tuple[str, ...]

    def compile(self, module: Module) -> Compilation:
        """Begins to compile `module` under advice."""

    def compile_plain(self, module: Module) -> ObjectSize:
        """Compiles `module` without advice, as users do."""

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """Direct calls in `module` as it was written: callees by name of the calling function."""

    def close(self) -> None:
        """Ends the compiler's process, if one waits; the compiler may be used again."""


def run_policy(compiler: Compiler, module: Module, decide: Decide) -> CompiledModule:
    """Compiles `module` with `decide` at every call site.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    with compiler.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            compilation.advise(decide(site))
        return compilation.result()


def oz_default(observation: np.void) -> bool:
    """LLVM's own decision at -Oz, from the channel's cost estimate."""
    return bool(observation["cost_estimate"] < OZ_THRESHOLD)


def announced_default(observation: np.void) -> bool:
    """LLVM's own decision, as an LLVM announces it that includes it in the channel."""
    return bool(observation["inlining_default"])


class EmbeddedLlvm:
    """The LLVM inside the llvmlite wheel: needs nothing installed, starts once for many modules."""

    def __init__(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.name = "embedded"
        version = importlib.metadata.version("llvmlite")
        self.identity = f"embedded llvmlite-{version} -Oz pic"
        self._timeout_s = timeout_s
        self._worker: _EmbeddedWorker | None = None
        self._channel: Channel | None = None

    @functools.cached_property
    def announced(self) -> tuple[str, ...]:
        """Feature names of the channel, in order; found by compiling a small probe."""
        with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as directory:
            path = pathlib.Path(directory) / "probe.ll"
            path.write_text(PROBE_IR)
            with self.compile(Module("probe", path, ".", "unknown")) as compilation:
                while (site := compilation.next_site()) is not None:
                    names = site.features.dtype.names
                    compilation.advise(site.default)
        return names

    def compile(self, module: Module) -> Compilation:
        """Begins to compile `module`; see `Compiler`.

        Raises:
          CompilerError: the module needs options that only clang understands.
        """
        if module.thinlto_index is not None:
            raise CompilerError(
                f"{module.name}: expected a module on its own, found one with a ThinLTO index; "
                "use a clang: --compiler clang"
            )
        if self._worker is None:
            self._channel = Channel()
            options = [option.format(base=self._channel.base) for option in _ADVISE]
            self._worker = _EmbeddedWorker([*options, _INCLUDE_DEFAULT, *_NAME_CALLEES])
        assert self._channel is not None
        self._channel.restart()
        backend = _EmbeddedBackend(self._worker, module.path, self)
        return Compilation(module.name, backend, self._channel, announced_default, self._timeout_s)

    def compile_plain(self, module: Module) -> ObjectSize:
        """Compiles without advice, in a process of its own."""
        worker = _EmbeddedWorker([])
        try:
            backend = _EmbeddedBackend(worker, module.path, None)
            return _wait_without_advice(module.name, backend, self._timeout_s)
        finally:
            worker.kill()

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """See `Compiler`."""
        worker, _ = self._start()
        backend = _EmbeddedBackend(worker, module.path, self, compiles=False, calls=True)
        _wait_for_reading(backend, self._timeout_s)
        return backend.calls

    def _start(self) -> tuple[_EmbeddedWorker, Channel]:
        if self._worker is None or self._channel is None:
            self._channel = Channel()
            options = [option.format(base=self._channel.base) for option in _ADVISE]
            self._worker = _EmbeddedWorker([*options, _INCLUDE_DEFAULT, *_NAME_CALLEES])
        return self._worker, self._channel

    def close(self) -> None:
        """Ends the worker process and removes its pipes."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _wait_without_advice(name: str, backend: _EmbeddedBackend, timeout_s: float) -> ObjectSize:
    channel = Channel()
    try:
        with Compilation(name, backend, channel, oz_default, timeout_s) as compilation:
            assert compilation.next_site() is None, "advice was asked for without a channel"
            return compilation.result().size
    finally:
        channel.close()


def _wait_for_reading(backend: _EmbeddedBackend, timeout_s: float) -> None:
    waiting = select.poll()
    waiting.register(backend.end_fd, select.POLLIN)
    while waiting.poll(timeout_s * 1000):
        if backend.poll_end():
            return
    raise CompilerError(f"expected a module read within {timeout_s:g} s, found none")


class _EmbeddedWorker:
    """An `embedded_worker.py` process."""

    def __init__(self, options: Sequence[str]) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="tfrl-embedded-")
        self.process = subprocess.Popen(
            [sys.executable, "-I", embedded_worker.__file__, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    def request(
        self, bitcode: pathlib.Path, output: pathlib.Path | None, *, calls: bool = False
    ) -> None:
        """Asks for one compile, or only for a reading where there is no output."""
        assert self.process.stdin is not None
        request = {
            "bitcode": os.fspath(bitcode),
            "object": output and os.fspath(output),
            "calls": calls,
        }
        with contextlib.suppress(BrokenPipeError):  # its death is reported by the reading side
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Kills the process and removes what it left."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        self.directory.cleanup()


class _EmbeddedBackend:
    """One compile in an embedded worker; the worker goes on to the next unless it was aborted."""

    def __init__(
        self,
        worker: _EmbeddedWorker,
        bitcode: pathlib.Path,
        owner: EmbeddedLlvm | None,
        *,
        compiles: bool = True,
        calls: bool = False,
    ) -> None:
        self.process = worker.process
        assert worker.process.stdout is not None
        self.end_fd = worker.process.stdout.fileno()
        self.linkage: Mapping[str, str] = {}
        self.calls: Mapping[str, Sequence[str]] = {}
        self._owner = owner
        self._object = pathlib.Path(worker.directory.name) / "module.o"
        self._replies = bytearray()
        worker.request(bitcode, self._object if compiles else None, calls=calls)

    def poll_end(self) -> bool:
        data = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.end_fd, 1 << 16):
                self._replies += data
            status = self.process.wait()
            raise CompilerError(
                f"expected an object, found that the embedded LLVM ended with status {status}"
            )
        while (end := self._replies.find(b"\n")) >= 0:
            reply = json.loads(self._replies[:end])
            del self._replies[: end + 1]
            if "functions" in reply:
                self.linkage = dict(reply["functions"])
            elif "calls" in reply:
                self.calls = reply["calls"]
            elif "error" in reply:
                raise CompilerError(
                    "expected bitcode that LLVM of this version can compile, found: "
                    f"{reply['error']}; rebuild the module with this LLVM or an older one"
                )
            else:
                return True
        return False

    def read_object(self) -> bytes:
        return self._object.read_bytes()

    def finish(self, *, aborted: bool) -> None:
        if aborted and self._owner is not None:
            self._owner.close()
        elif not aborted:
            self._object.unlink(missing_ok=True)


class SystemClang:
    """A clang of LLVM 17 or newer; one process for each module, as a build system starts it.

    Args:
      executable: path, or a name on PATH.
      timeout_s: a compile that takes longer is stopped.

    Raises:
      UserError: there is no such program, it is not clang, or it is too old.
    """

    def __init__(
        self, executable: str | os.PathLike = "clang", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        found = shutil.which(os.fspath(executable))
        if found is None:
            raise UserError(
                f"compiler: expected a clang of LLVM 17 or newer, found no program "
                f"{os.fspath(executable)!r}; install one, or use --compiler embedded"
            )
        self.executable = found
        self.name = pathlib.Path(found).name
        self.facts = probe_clang(found)
        self.identity = f"clang {self.facts.version} -Oz"
        self._timeout_s = timeout_s
        self.announced = self.facts.announced
        self._reader: _EmbeddedWorker | None = None

    def command(self, module: Module, output: pathlib.Path, options: Sequence[str]) -> list[str]:
        """The command line that compiles `module` to `output`."""
        llvm_options = [word for option in options for word in ("-mllvm", option)]
        if module.command:
            thinlto = [f"-fthinlto-index={module.thinlto_index}"] if module.thinlto_index else []
            tail = ["-x", "ir", os.fspath(module.path), "-o", os.fspath(output)]
            return [self.executable, *module.command, *thinlto, *llvm_options, *tail]
        thinlto = [f"-fthinlto-index={module.thinlto_index}"] if module.thinlto_index else []
        tail = ["-x", "ir", os.fspath(module.path), "-o", os.fspath(output)]
        return [self.executable, "-Oz", "-c", *thinlto, *llvm_options, *tail]

    def compile(self, module: Module) -> Compilation:
        """Begins to compile `module`; see `Compiler`."""
        channel = Channel()
        options = [option.format(base=channel.base) for option in _ADVISE]
        default_fn = oz_default
        names: tuple[str, ...] = ()
        if self.facts.announces_default:
            options.append(_INCLUDE_DEFAULT)
            default_fn = announced_default
            names = ("-Rpass-missed=inline", "-Rpass=inline")
        backend = _ClangBackend(self, module, options, names, channel)
        if self.facts.announces_default:
            backend.linkage = self._read_linkage(module)
        return Compilation(module.name, backend, channel, default_fn, self._timeout_s)

    def compile_plain(self, module: Module) -> ObjectSize:
        """Compiles without advice.

        Raises:
          CompilerError: clang failed.
        """
        channel = Channel()
        backend = _ClangBackend(self, module, [], (), channel)
        with Compilation(module.name, backend, channel, oz_default, self._timeout_s) as run:
            assert run.next_site() is None, "advice was asked for without a channel"
            return run.result().size

    def close(self) -> None:
        """Ends the process that reads linkages."""
        if self._reader is not None:
            self._reader.kill()
            self._reader = None

    def _read_linkage(self, module: Module) -> Mapping[str, str]:
        """Linkage by name; empty where the embedded LLVM cannot read the module, say if newer."""
        with contextlib.suppress(CompilerError):
            return self._read(module, calls=False).linkage
        self.close()
        return {}

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """See `Compiler`."""
        return self._read(module, calls=True).calls

    def _read(self, module: Module, *, calls: bool) -> _EmbeddedBackend:
        if self._reader is None:
            self._reader = _EmbeddedWorker([])
        backend = _EmbeddedBackend(self._reader, module.path, None, compiles=False, calls=calls)
        _wait_for_reading(backend, self._timeout_s)
        return backend


class _ClangBackend:
    """One clang process that compiles one module."""

    def __init__(
        self,
        clang: SystemClang,
        module: Module,
        options: Sequence[str],
        driver_options: Sequence[str],
        channel: Channel,
    ) -> None:
        self.linkage: Mapping[str, str] = {}
        self._channel = channel
        self._directory = tempfile.TemporaryDirectory(prefix="tfrl-clang-")
        self._object = pathlib.Path(self._directory.name) / "module.o"
        command = clang.command(module, self._object, options)
        command[1:1] = [] if module.command else list(driver_options)
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        # A clang whose host was killed spins on its closed pipe: the kernel ends it then.
        limit_s = int(clang._timeout_s) + 1
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.process.pid, resource.RLIMIT_CPU, (limit_s, limit_s))
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        self.end_fd = os.pidfd_open(self.process.pid)

    def poll_end(self) -> bool:
        status = self.process.wait()
        if status != 0:
            raise CompilerError(f"expected an object, found that clang ended with status {status}")
        return True

    def read_object(self) -> bytes:
        return self._object.read_bytes()

    def finish(self, *, aborted: bool) -> None:
        if aborted:
            self.process.kill()
        self.process.wait()
        os.close(self.end_fd)
        assert self.process.stderr is not None
        self.process.stderr.close()
        self._directory.cleanup()
        self._channel.close()
