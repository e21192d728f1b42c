"""A compiler: the LLVM inside the llvmlite wheel, in its own process (`embedded_worker.py`)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pathlib
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence

from environments.inlining.compilers.channel import Channel
from environments.inlining.compilers.clang_probe import PROBE_IR
from environments.inlining.compilers.compilation import (
    ADVISE_OPTIONS,
    DEFAULT_FEATURE,
    DEFAULT_TIMEOUT_S,
    INCLUDE_DEFAULT_OPTION,
    Compilation,
    CompiledModule,
    CompilerError,
    compile_without_advice,
)
from environments.inlining.corpus.modules import Module
from environments.isolation import guardian

_WORKER_SCRIPT = pathlib.Path(__file__).with_name("embedded_worker.py")
_NAME_CALLEES = ("-pass-remarks-missed=inline", "-pass-remarks=inline")
_READ_BYTES = 1 << 16
# llvmlite 0.50 leaks the passes that it builds, about 50 KiB for each compile and more for large
# modules; a worker that uses more memory than this is replaced by a new one.
_MAX_WORKER_BYTES = 512 << 20
# Feature names by identity of the compiler; shared by all compilers of this process.
_announced: dict[str, tuple[str, ...]] = {}
_MAX_PROBES = 3


class EmbeddedWorker:
    """A process that runs `embedded_worker.py`.

    Args:
      options: LLVM's options, "-name=value" each; they hold for the whole process.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._object_fd = os.memfd_create("object")
        self.busy = False
        self.memory_bytes = 0
        self.process = subprocess.Popen(
            [sys.executable, "-I", _WORKER_SCRIPT, str(self._object_fd), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._object_fd,),
            # Ctrl-C must reach only the host, which then ends its compilers properly.
            start_new_session=True,
        )
        guardian.watch(self.process)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    def is_spent(self) -> bool:
        """Return whether the process has ended, or is too large for another request."""
        too_large = not self.busy and self.memory_bytes > _MAX_WORKER_BYTES
        return too_large or self.process.poll() is not None

    def request(self, message: dict) -> None:
        """Send a request; its replies must be read to their end before the next request."""
        assert self.process.stdin is not None
        if self.busy:
            raise RuntimeError("expected one module at a time, found a second in an EmbeddedLlvm")
        self.busy = True
        with contextlib.suppress(BrokenPipeError):  # Reading the replies reports the death.
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def read_object(self) -> bytes:
        """Return the bytes of the object that the worker wrote last."""
        return os.pread(self._object_fd, os.fstat(self._object_fd).st_size, 0)

    def kill(self) -> None:
        """Kill the process and release its resources; may be called again."""
        if self._object_fd < 0:
            return
        guardian.kill(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        os.close(self._object_fd)
        self._object_fd = -1


class EmbeddedRequest:
    """A request to an embedded worker to compile or read one module; a `Backend` of `Compilation`.

    Attributes:
      linkage: linkage of the functions that the module defines, by name; empty until the worker
        has sent it.
      calls: names of the functions called directly, by name of the caller; empty if not asked for.
      instructions: number of each function's instructions, by name; empty if `calls` is.
    """

    def __init__(
        self,
        worker: EmbeddedWorker,
        bitcode: pathlib.Path,
        *,
        compiles: bool = True,
        calls: bool = False,
    ) -> None:
        self.process = worker.process
        assert worker.process.stdout is not None
        self.end_fd = worker.process.stdout.fileno()
        self.linkage: Mapping[str, str] = {}
        self.calls: Mapping[str, Sequence[str]] = {}
        self.instructions: Mapping[str, int] = {}
        self._worker = worker
        self._replies = bytearray()
        worker.request({"bitcode": os.fspath(bitcode), "compiles": compiles, "calls": calls})

    def poll_end(self) -> bool:
        """See `Backend`."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.end_fd, _READ_BYTES):
                self._replies += data
            status = self.process.wait()
            raise CompilerError(
                f"expected an object, found that the embedded LLVM {describe_end(status)}"
            )
        while (end := self._replies.find(b"\n")) >= 0:
            reply = json.loads(self._replies[:end])
            del self._replies[: end + 1]
            if "functions" in reply:
                self.linkage = dict(reply["functions"])
            elif "calls" in reply:
                self.calls, self.instructions = reply["calls"], reply["instructions"]
            else:
                self._worker.busy = False
                if "error" in reply:
                    raise CompilerError(
                        "expected bitcode that LLVM of this version can compile, found: "
                        f"{reply['error']}; rebuild the module with this LLVM or an older one"
                    )
                self._worker.memory_bytes = reply["memory_bytes"]
                return True
        return False

    def read_object(self) -> bytes:
        """See `Backend`."""
        return self._worker.read_object()

    def finish(self) -> None:
        """See `Backend`. Kill the worker if the request is unfinished; else it takes the next."""
        if self._worker.busy:
            self._worker.kill()


class ModuleReader:
    """A worker without options, which reads modules; compilers that differ in the rest have one.

    Args:
      timeout_s: how long one module may keep the host waiting, in s; then its process is ended.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._plain_worker: EmbeddedWorker | None = None

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """See `Compiler`."""
        return self._read(module, calls=True).calls

    def read_instructions(self, module: Module) -> Mapping[str, int]:
        """See `Compiler`."""
        return self._read(module, calls=True).instructions

    def close(self) -> None:
        """End the worker; another takes its place when it is needed."""
        if self._plain_worker is not None:
            self._plain_worker.kill()
            self._plain_worker = None

    def _usable_worker(self) -> EmbeddedWorker:
        if self._plain_worker is not None and self._plain_worker.is_spent():
            self._plain_worker.kill()
            self._plain_worker = None
        if self._plain_worker is None:
            self._plain_worker = EmbeddedWorker([])
        return self._plain_worker

    def _read(self, module: Module, *, calls: bool) -> EmbeddedRequest:
        """Read a module without compiling it.

        Raises:
          CompilerError: the embedded LLVM cannot read the module, or not within the time limit.
        """
        request = EmbeddedRequest(self._usable_worker(), module.path, compiles=False, calls=calls)
        waiting = select.poll()
        waiting.register(request.end_fd, select.POLLIN)
        try:
            while waiting.poll(self._timeout_s * 1000):
                if request.poll_end():
                    return request
            raise CompilerError(
                f"expected it read within {self._timeout_s:g} s, found that it was not"
            )
        except CompilerError as error:
            raise CompilerError(f"{module.name}: {error}") from error
        finally:
            request.finish()


class EmbeddedLlvm(ModuleReader):
    """The embedded LLVM. It needs no installed compiler, and one process compiles many modules."""

    def __init__(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(timeout_s)
        self.name = "embedded"
        version = importlib.metadata.version("llvmlite")
        self.identity = f"embedded llvmlite-{version} -Oz pic {ADVISE_OPTIONS[-1]}"
        # LLVM's options hold for a whole process, so the one that compiles plainly is another.
        self._worker: EmbeddedWorker | None = None
        self._channel: Channel | None = None

    @property
    def announced(self) -> tuple[str, ...]:
        """Names of the channel's features, in order; found by compiling a small probe once."""
        if self.identity not in _announced:
            # If the probe does not compile, something killed LLVM and may not do so again.
            for _ in range(_MAX_PROBES - 1):
                with contextlib.suppress(CompilerError):
                    _announced[self.identity] = self._probe()
                    break
            else:
                _announced[self.identity] = self._probe()
        return _announced[self.identity]

    def _probe(self) -> tuple[str, ...]:
        with guardian.make_directory() as directory:
            path = pathlib.Path(directory) / "probe.ll"
            path.write_text(PROBE_IR)
            with self._compile(Module("probe", path, ".", "unknown")) as compilation:
                while (site := compilation.next_site()) is not None:
                    compilation.advise(site.default)
                return compilation.announced

    def compile(self, module: Module) -> Compilation:
        """Begin to compile a module under advice; see `Compiler`.

        Raises:
          CompilerError: the module needs options that only clang understands.
        """
        if module.thinlto_index is not None:
            raise CompilerError(
                f"{module.name}: expected a module on its own, found one with a ThinLTO index; "
                "use a clang: --compiler clang"
            )
        # Asked for now, because the probe cannot be compiled in the middle of another module.
        assert self.announced
        return self._compile(module)

    def _compile(self, module: Module) -> Compilation:
        worker, channel = self._start()
        channel.restart()
        request = EmbeddedRequest(worker, module.path)
        return Compilation(module.name, request, channel, DEFAULT_FEATURE, self._timeout_s)

    def compile_plain(self, module: Module) -> CompiledModule:
        """See `Compiler`."""
        request = EmbeddedRequest(self._usable_worker(), module.path)
        return compile_without_advice(module.name, request, self._timeout_s)

    def fork(self) -> EmbeddedLlvm:
        """See `Compiler`."""
        return EmbeddedLlvm(self._timeout_s)

    def close(self) -> None:
        """End the worker processes and remove their pipes."""
        super().close()
        self._end_steered()

    def _end_steered(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _start(self) -> tuple[EmbeddedWorker, Channel]:
        if self._worker is not None and self._worker.is_spent():
            self._end_steered()
        if self._worker is None or self._channel is None:
            self._channel = Channel()
            options = [option.format(base=self._channel.base) for option in ADVISE_OPTIONS]
            self._worker = EmbeddedWorker([*options, INCLUDE_DEFAULT_OPTION, *_NAME_CALLEES])
        return self._worker, self._channel


def describe_end(status: int) -> str:
    """Return words that say how a process ended, from its `returncode`."""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
