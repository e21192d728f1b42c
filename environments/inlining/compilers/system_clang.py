"""A compiler: the user's own clang, LLVM 17 or newer, steered without being rebuilt."""

from __future__ import annotations

import contextlib
import copy
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from environments.errors import UserError
from environments.inlining.compilers.channel import Channel
from environments.inlining.compilers.clang_probe import probe_clang
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
from environments.inlining.compilers.embedded import ModuleReader, describe_end
from environments.inlining.corpus.modules import Module
from environments.isolation import guardian

_NAME_CALLEES = ("-Rpass-missed=inline", "-Rpass=inline")


class SystemClang(ModuleReader):
    """The user's clang; it starts one process for each module, as a build system does.

    Args:
      executable: a path, or a name on PATH.
      timeout_s: see `ModuleReader`.

    Raises:
      UserError: there is no such program, it is not clang, or it is too old.
    """

    def __init__(
        self, executable: str | os.PathLike = "clang", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        super().__init__(timeout_s)
        path = shutil.which(os.fspath(executable))
        if path is None:
            raise UserError(
                f"compiler: expected a clang of LLVM 17 or newer, found no program "
                f"{os.fspath(executable)!r}; install one, or use --compiler embedded"
            )
        self.executable = path
        self.name = pathlib.Path(path).name
        self.facts = probe_clang(path)
        self.identity = f"{self.facts.banner} -Oz {ADVISE_OPTIONS[-1]}"
        if self.facts.default_feature not in ("", DEFAULT_FEATURE):
            self.identity += f" {INCLUDE_DEFAULT_OPTION}"  # It overwrites another feature.
        self.announced = self.facts.announced
        # Hash and linkage of the last module: exploration compiles one module many times in a row.
        self._linkage: tuple[str, Mapping[str, str]] = ("", {})

    def command(self, module: Module, options: Sequence[str] = ()) -> list[str]:
        """Return the command line that compiles a module, by its own options, to standard output.

        `options` are LLVM's, passed with -mllvm.
        """
        command = [self.executable, *(module.command or ("-Oz", "-c"))]
        if module.thinlto_index is not None:
            command.append(f"-fthinlto-index={module.thinlto_index}")
            # The corpus holds modules after importing. Their names are not those in the index, so
            # without this option LLVM would take all that they define for dead.
            options = ("-thinlto-assume-merged", *options)
        for option in options:
            command += ["-mllvm", option]
        return [*command, "-x", "ir", os.fspath(module.path), "-o", "-"]

    def compile(self, module: Module) -> Compilation:
        """Begin to compile a module under advice; see `Compiler`.

        Raises:
          CompilerError: clang cannot be started.
        """
        channel = Channel()
        options = [option.format(base=channel.base) for option in ADVISE_OPTIONS]
        names: tuple[str, ...] = ()
        if self.facts.announces_default:
            options.append(INCLUDE_DEFAULT_OPTION)
            names = _NAME_CALLEES
        command = self.command(module, options)
        command[2:2] = names  # After -cc1, which must come first.
        with contextlib.ExitStack() as on_error:
            on_error.callback(channel.close)
            backend = _ClangProcess(module.name, command, channel=channel)
            on_error.callback(backend.finish)
            if self.facts.announces_default:
                # The embedded LLVM reads the linkage while clang starts.
                backend.linkage = self._read_linkage(module)
            on_error.pop_all()
        feature = self.facts.default_feature
        return Compilation(module.name, backend, channel, feature, self._timeout_s)

    def compile_plain(
        self,
        module: Module,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> CompiledModule:
        """Compile without advice, with more options of clang and environment variables.

        Raises:
          CompilerError: clang failed, died or hung.
        """
        command = self.command(module)
        command[2:2] = options  # After -cc1, which must come first.
        backend = _ClangProcess(module.name, command, environment)
        return compile_without_advice(module.name, backend, self._timeout_s)

    def fork(self) -> SystemClang:
        """See `Compiler`."""
        twin = copy.copy(self)
        twin._plain_worker = None
        return twin

    def _read_linkage(self, module: Module) -> Mapping[str, str]:
        """Return the linkage of functions by name; empty if a newer LLVM wrote the module."""
        try:
            if self._linkage[0] == module.sha256:
                return self._linkage[1]
            read = self._read(module, calls=False)
        except (CompilerError, OSError):
            return {}
        self._linkage = (module.sha256, read.linkage)
        return read.linkage


class _ClangProcess:
    """A clang process that compiles one module; a `Backend` that closes its own channel."""

    def __init__(
        self,
        module_name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        channel: Channel | None = None,
    ) -> None:
        self.linkage: Mapping[str, str] = {}
        self._channel = channel
        self._object_fd = os.memfd_create("object")
        try:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._object_fd,
                stderr=subprocess.PIPE,
                # Ctrl-C must reach only the host, which then ends its compilers properly.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._object_fd)
            raise CompilerError(
                f"{module_name}: expected {command[0]} to start, found: {error}; "
                "name another compiler with --compiler"
            ) from error
        guardian.watch(self.process)
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        self.end_fd = os.pidfd_open(self.process.pid)

    def poll_end(self) -> bool:
        """See `Backend`."""
        status = self.process.wait()
        if status != 0:
            raise CompilerError(f"expected an object, found that clang {describe_end(status)}")
        return True

    def read_object(self) -> bytes:
        """See `Backend`."""
        return os.pread(self._object_fd, os.fstat(self._object_fd).st_size, 0)

    def finish(self) -> None:
        """See `Backend`."""
        guardian.kill(self.process)
        os.close(self.end_fd)
        os.close(self._object_fd)
        assert self.process.stderr is not None
        self.process.stderr.close()
        if self._channel is not None:
            self._channel.close()
