"""One compile under advice: call sites out, decisions in, sizes at the end."""

from __future__ import annotations

import dataclasses
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np

from environments.errors import UserError
from environments.inlining.compilers.channel import Channel, Header, ProtocolError
from environments.inlining.compilers.object_size import (
    ObjectSize,
    read_function_bytes,
    read_object_size,
)

DEFAULT_TIMEOUT_S = 300.0
# Without the last, LLVM stops inlining once a module has doubled, which a plain -Oz does not.
ADVISE_OPTIONS = (
    "-enable-ml-inliner=release",
    "-inliner-interactive-channel-base={base}",
    "-ml-advisor-size-increase-threshold=1000000",
)
INCLUDE_DEFAULT_OPTION = "-inliner-interactive-include-default"
DEFAULT_FEATURE = "inlining_default"
UNKNOWN = -1
"""The value of a feature that LLVM does not send."""

# At -Oz LLVM inlines below a cost of 5 and nothing else.
_OZ_THRESHOLD = 5

_REMARK = b"remark: "
_STDERR_TAIL_BYTES = 4000
_READ_BYTES = 1 << 13
_MAX_LINE_BYTES = 1 << 16
_DRAIN_EVERY_MS = 20


class CompilerError(UserError):
    """A compiler failed, died or hung on one module."""


class CallSite(NamedTuple):
    """What LLVM says of one call site.

    Attributes:
      features: one value for each feature of the channel's header, in its order.
      default: LLVM's own decision at -Oz.
      callee: name of the function called, where LLVM names it before the decision: at sites where
        its default is not to inline, on versions whose default can be asked for. Else None.
      caller: likewise, the function that holds the call.
    """

    features: tuple
    default: bool
    callee: str | None = None
    caller: str | None = None


Decide = Callable[[CallSite], int]
"""A policy at its simplest: 1 to inline the call site, 0 not to."""


class _Reader:
    """Reads observations, LLVM's own decision among them.

    Args:
      header: what the channel announces.
      default_feature: see `Compilation`.
    """

    def __init__(self, header: Header, default_feature: str) -> None:
        self._unpack = header.unpack
        self._place = header.names.index(default_feature or "cost_estimate")
        self._is_cost = not default_feature
        self._is_overwritten = default_feature not in ("", DEFAULT_FEATURE)
        self._unused = header.names.index(DEFAULT_FEATURE) if self._is_overwritten else None

    def read(self, observation: bytes) -> tuple[tuple, tuple, bool]:
        """The values as remarks tell them, as features, and LLVM's own decision."""
        sent = self._unpack(observation)
        value = sent[self._place]
        if self._is_cost:
            return sent, sent, value < _OZ_THRESHOLD
        if self._unused is None:
            return sent, sent, value != 0
        told = sent[: self._unused] + sent[self._unused + 1 :]
        return told, (*sent[: self._place], UNKNOWN, *sent[self._place + 1 :]), value != 0


@dataclasses.dataclass(frozen=True)
class CompiledModule:
    """The end of one compile.

    Attributes:
      size: sizes of the object.
      decisions: int8 [T], 1 where a call site was inlined.
      callees: T names of the functions called, known when the compile is over; None where LLVM did
        not name one.
    """

    size: ObjectSize
    decisions: np.ndarray
    callees: tuple[str | None, ...]


class Backend(Protocol):
    """What a compiler hands to `Compilation`: a running process that compiles one module.

    Attributes:
      process: the process; its stderr is a pipe, non-blocking.
      end_fd: readable when the compile may be over.
      linkage: name to linkage of the module's functions, filled in when it is known.
    """

    process: subprocess.Popen
    end_fd: int
    linkage: Mapping[str, str]

    def poll_end(self) -> bool:
        """Is the compile over? Called when `end_fd` is readable; raises CompilerError."""

    def read_object(self) -> bytes:
        """The object file, after the end."""

    def finish(self) -> None:
        """Releases what the compile held; ends the process if the compile is not over."""


class Compilation:
    """A compile in progress. Use as a context manager; leaving it early ends the compiler.

    Args:
      module_name: for messages.
      backend: the process that compiles.
      channel: its channel.
      default_feature: the feature in which the channel sends LLVM's own decision; "" where it does
        not, and the cost must tell. Another than `DEFAULT_FEATURE` is overwritten by it: its own
        value is unknown.
      timeout_s: how long in all the compiler may keep its host waiting.
      owns_channel: close the channel with the compile.
    """

    def __init__(
        self,
        module_name: str,
        backend: Backend,
        channel: Channel,
        default_feature: str,
        timeout_s: float,
        *,
        owns_channel: bool = False,
    ) -> None:
        self._module_name = module_name
        self._backend = backend
        self._channel = channel
        self._default_feature = default_feature
        self._reader: _Reader | None = None
        self._timeout_s = timeout_s
        self._waited_s = 0.0
        self._owns_channel = owns_channel
        assert backend.process.stderr is not None
        self._stderr_fd = backend.process.stderr.fileno()
        self._stderr = b""
        self._tail = bytearray()
        self._ended = self._closed = False
        self._names: tuple[str | None, str | None] = (None, None)
        self._decisions: list[int] = []
        self._callees: list[str | None] = []
        self._told: tuple = ()
        self._poll = select.poll()
        for fd in (channel.observation_fd, backend.end_fd):
            self._poll.register(fd, select.POLLIN)

    @property
    def announced(self) -> tuple[str, ...]:
        """Names of the channel's features, in order; none before the first call site."""
        header = self._channel.parser.header
        return () if header is None else header.names

    @property
    def linkage(self) -> Mapping[str, str]:
        """Linkage by name of the functions that the module defines; empty where unknown."""
        return self._backend.linkage

    @property
    def last_decision(self) -> int:
        """The decision that was given last."""
        return self._decisions[-1]

    @property
    def last_callee(self) -> str | None:
        """The callee of that decision; where LLVM names it late, with the next call site."""
        return self._callees[-1]

    def next_site(self) -> CallSite | None:
        """Waits for the next call site; None when the compile is over.

        Raises:
          CompilerError: the compiler failed, died, took longer than its time limit, or speaks
            another protocol.
        """
        while True:
            try:
                observation = self._channel.parser.next_observation()
            except ProtocolError as error:
                raise CompilerError(f"{self._module_name}: {error}") from error
            if observation is not None:
                self._drain_stderr()
                if self._reader is None:
                    self._reader = self._make_reader()
                self._told, features, default = self._reader.read(observation)
                return CallSite(features, default, *self._names)
            if self._ended:
                # What belongs to this compile must not be read as a part of the next.
                self._drain_stderr()
                return None
            self._wait()

    def advise(self, decision: int) -> None:
        """Decides the call site that `next_site` returned last: 1 to inline, 0 not to.

        Raises:
          CompilerError: the compiler does not read the answers.
        """
        decision = int(decision)
        self._decisions.append(decision)
        self._callees.append(self._names[0])
        self._names = (None, None)
        try:
            self._channel.advise(decision)
        except ProtocolError as error:
            raise CompilerError(f"{self._module_name}: {error}") from error

    def result(self) -> CompiledModule:
        """Sizes and decisions, after `next_site` returned None.

        Raises:
          CompilerError: what was compiled is no ELF object.
        """
        assert self._ended, "the compile is not over"
        try:
            size = read_object_size(self._backend.read_object())
        except UserError as error:
            raise CompilerError(f"{self._module_name}: {error}") from error
        return CompiledModule(
            size=size,
            decisions=np.array(self._decisions, np.int8),
            callees=tuple(self._callees),
        )

    def function_bytes(self) -> dict[str, int]:
        """Bytes of the object by function, after `next_site` returned None."""
        assert self._ended, "the compile is not over"
        return read_function_bytes(self._backend.read_object())

    def close(self) -> None:
        """Ends the compile and releases what it held; may be called again."""
        if self._closed:
            return
        self._closed = True
        self._backend.finish()
        if self._owns_channel:
            self._channel.close()

    def _make_reader(self) -> _Reader:
        assert self._channel.parser.header is not None
        try:
            return _Reader(self._channel.parser.header, self._default_feature)
        except ValueError as error:
            raise CompilerError(
                f"{self._module_name}: expected a channel that announces "
                f"{self._default_feature or 'cost_estimate'}, found only "
                f"{', '.join(self.announced)}; use another build of the compiler"
            ) from error

    def _wait(self) -> None:
        # stderr is not waited for: it would wake the host twice for each call site. It is read with
        # each call site, and now and then, so that its pipe never stays full.
        # Only time spent here counts: whoever decides may take as long as they like.
        began_s = time.monotonic()
        ready = self._poll.poll(_DRAIN_EVERY_MS)
        self._waited_s += time.monotonic() - began_s
        if not ready:
            self._drain_stderr()
            if self._waited_s < self._timeout_s:
                return
            raise CompilerError(
                f"{self._module_name}: expected an object within {self._timeout_s:g} s, found a "
                f"compiler still busy after {len(self._decisions)} decisions; it was stopped: "
                "raise the time limit or leave the module out"
            )
        for fd, _ in ready:
            if fd == self._backend.end_fd:
                self._poll_end()
        self._channel.pump()

    def _poll_end(self) -> None:
        try:
            self._ended = self._backend.poll_end()
        except CompilerError as error:
            self._drain_stderr()
            raise CompilerError(f"{self._module_name}: {error}{self._complaint()}") from error

    def _drain_stderr(self) -> None:
        """Reads what is in stderr, without waiting."""
        try:
            while data := os.read(self._stderr_fd, _READ_BYTES):
                self._take_text(data)
                if len(data) < _READ_BYTES:
                    return
        except BlockingIOError:
            return

    def _take_text(self, text: bytes) -> None:
        *lines, rest = (self._stderr + text).split(b"\n")
        self._stderr = rest[-_MAX_LINE_BYTES:]
        for line in lines:
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if not line.startswith(_REMARK):
            self._tail += line + b"\n"
            del self._tail[:-_STDERR_TAIL_BYTES]
            return
        before, refused, after = line.partition(b"' not inlined into '")
        if refused:
            callee, caller = before.rpartition(b"'")[2], after.partition(b"'")[0]
            self._names = (callee.decode(errors="replace"), caller.decode(errors="replace"))
        elif self._callees and self._callees[-1] is None:
            self._name_last_callee(line)

    def _name_last_callee(self, line: bytes) -> None:
        """Takes the callee from the remark after a decision.

        It says: remark: FILE:LINE:COLUMN: NAME, without a space all values, true or false, and
        perhaps the option that asked for remarks.
        """
        *_, text = line.partition(b" [-R")[0].rpartition(b": ")
        values = b"%d" * len(self._told) % self._told
        for answer in (b"true", b"false"):
            if text.endswith(values + answer):
                name = text[: -len(values + answer)]
                self._callees[-1] = name.decode(errors="replace") or None

    def _complaint(self) -> str:
        said = (self._tail + self._stderr).decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower() or "ssertion" in line] or lines
        return f": {telling[0].strip()[:300]}" if telling else ""

    def __enter__(self) -> Compilation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def compile_without_advice(module_name: str, backend: Backend, timeout_s: float) -> ObjectSize:
    """Waits for a compile that asks nothing.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    channel = Channel()
    with Compilation(
        module_name, backend, channel, "", timeout_s, owns_channel=True
    ) as compilation:
        assert compilation.next_site() is None, "advice was asked for without a channel"
        return compilation.result().size
