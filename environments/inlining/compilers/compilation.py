"""One compile under advice: it yields call sites, takes decisions, and ends with the sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from environments.errors import UserError
from environments.inlining.compilers.channel import Channel, Header, ProtocolError
from environments.inlining.compilers.object_size import ObjectSize, read_object_size
from environments.inlining.compilers.remarks import Remarks

DEFAULT_TIMEOUT_S = 300.0
# The last option is needed because LLVM would stop inlining once a module has doubled in size. A
# plain -Oz does not stop there.
ADVISE_OPTIONS = (
    "-enable-ml-inliner=release",
    "-inliner-interactive-channel-base={base}",
    "-ml-advisor-size-increase-threshold=1000000",
)
INCLUDE_DEFAULT_OPTION = "-inliner-interactive-include-default"
DEFAULT_FEATURE = "inlining_default"
UNKNOWN = -1
"""The value of a feature that LLVM does not send."""

# At -Oz LLVM inlines exactly those call sites whose cost is below 5.
_OZ_THRESHOLD = 5

# Without advice there are no remarks, so little comes.
_DRAIN_EVERY_MS_WITHOUT_ADVICE = 200


class CompilerError(UserError):
    """A compiler failed, died or hung on one module."""


class CallSite(NamedTuple):
    """What LLVM says about one call site.

    Attributes:
      features: one value for each feature of the channel's header, in the header's order.
      default: LLVM's own decision at -Oz.
      callee: name of the function that is called, if LLVM gives it before the decision; else None.
        LLVM gives it at sites where its own decision is not to inline, in versions that can send
        their own decision.
      caller: name of the function that contains the call, under the same conditions.
    """

    features: tuple
    default: bool
    callee: str | None = None
    caller: str | None = None


Decide = Callable[[CallSite], int]
"""A policy at its simplest: 1 to inline the call site, 0 not to."""


class _Reader:
    """Reads observations, and LLVM's own decision from them."""

    def __init__(self, header: Header, default_feature: str) -> None:
        self._unpack = header.unpack
        self._place = header.names.index(default_feature or "cost_estimate")
        self._is_cost = not default_feature
        self._is_overwritten = default_feature not in ("", DEFAULT_FEATURE)
        self._unused = header.names.index(DEFAULT_FEATURE) if self._is_overwritten else None

    def read(self, observation: bytes) -> tuple[tuple, tuple, bool]:
        """Return the values as remarks print them, the features, and LLVM's own decision."""
        sent = self._unpack(observation)
        value = sent[self._place]
        if self._is_cost:
            return sent, sent, value < _OZ_THRESHOLD
        if self._unused is None:
            return sent, sent, value != 0
        printed = sent[: self._unused] + sent[self._unused + 1 :]
        return printed, (*sent[: self._place], UNKNOWN, *sent[self._place + 1 :]), value != 0


Names = tuple[tuple[str | None, str | None], ...]
"""Caller and callee of each of T call sites; None where LLVM does not name them."""


@dataclasses.dataclass(frozen=True)
class CompiledModule:
    """The results of one compile with T call sites.

    Attributes:
      size: sizes of the object.
      data: the object file.
      decisions: int8 [T], 1 where a call site was inlined.
      callees: names of the T functions called, as known at the end of the compile; None where LLVM
        gave no name. Empty if the policy was inside clang.
      features: int64 [T, F], what a policy saw at each call site; empty if no policy decided.
      names: caller and callee of each call site, if LLVM names them before the decision.
    """

    size: ObjectSize
    data: bytes
    decisions: np.ndarray
    callees: tuple[str | None, ...] = ()
    features: np.ndarray = dataclasses.field(default_factory=lambda: np.empty((0, 0), np.int64))
    names: Names = ()


class Backend(Protocol):
    """A running process that compiles one module, as a compiler hands it to `Compilation`.

    Attributes:
      process: the process; its stderr is a non-blocking pipe.
      end_fd: file descriptor that becomes readable when the compile may be over.
      linkage: linkage of the module's functions by name; empty until it is known.
    """

    process: subprocess.Popen
    end_fd: int
    linkage: Mapping[str, str]

    def poll_end(self) -> bool:
        """Return whether the compile is over; called when `end_fd` is readable.

        Raises:
          CompilerError: the compiler failed or died.
        """

    def read_object(self) -> bytes:
        """Return the bytes of the object file, once the compile is over."""

    def finish(self) -> None:
        """Release the compile's resources; end the process if the compile is not over."""


class Compilation:
    """A compile in progress. It is a context manager; leaving it early ends the compiler.

    Args:
      module_name: for messages.
      backend: the process that compiles.
      channel: its channel.
      default_feature: name of the feature in which the channel sends LLVM's own decision. "" if
        the channel does not send it; the decision is then derived from the cost. If it is not
        `DEFAULT_FEATURE`, the decision overwrites that feature, whose own value is unknown.
      timeout_s: how long the host may wait for the compiler in total, in s.
      drain_every_ms: how often stderr is read at least, so that the compiler need not wait for it.
    """

    def __init__(
        self,
        module_name: str,
        backend: Backend,
        channel: Channel,
        default_feature: str,
        timeout_s: float,
        drain_every_ms: int = 20,
    ) -> None:
        self._module_name = module_name
        self._backend = backend
        self._channel = channel
        self._default_feature = default_feature
        self._reader: _Reader | None = None
        self._timeout_s = timeout_s
        self._waited_s = 0.0
        self._drain_every_ms = drain_every_ms
        assert backend.process.stderr is not None
        self._remarks = Remarks(backend.process.stderr.fileno())
        self._ended = self._closed = False
        self._decisions: list[int] = []
        self._poll = select.poll()
        for fd in (channel.observation_fd, backend.end_fd):
            self._poll.register(fd, select.POLLIN)

    @property
    def announced(self) -> tuple[str, ...]:
        """Names of the channel's features, in order; empty before the first call site."""
        header = self._channel.parser.header
        return () if header is None else header.names

    @property
    def linkage(self) -> Mapping[str, str]:
        """Linkage of the functions that the module defines, by name; empty if unknown."""
        return self._backend.linkage

    @property
    def last(self) -> tuple[int, str | None]:
        """The last decision and the name of its callee; None if LLVM has not given it.

        LLVM may give the name only after the decision; it is then known at the next call site.
        """
        return self._decisions[-1], self._remarks.callees[-1]

    def next_site(self) -> CallSite | None:
        """Wait for the next call site and return it; return None when the compile is over.

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
                self._remarks.drain()
                if self._reader is None:
                    self._reader = self._make_reader()
                printed, features, default = self._reader.read(observation)
                return CallSite(features, default, *self._remarks.names_of(printed))
            if self._ended:
                # An embedded worker has one stderr for all its modules: what is left belongs to
                # this compile, not to the next.
                self._remarks.drain()
                return None
            self._wait()

    def advise(self, decision: int) -> None:
        """Decide the call site that `next_site` returned last: 1 to inline, 0 not to.

        Raises:
          CompilerError: the compiler does not read the decisions.
        """
        decision = int(decision)
        self._decisions.append(decision)
        self._remarks.take_decision()
        try:
            self._channel.advise(decision)
        except ProtocolError as error:
            raise CompilerError(f"{self._module_name}: {error}") from error

    def result(self) -> CompiledModule:
        """Return the object and the decisions, once `next_site` has returned None.

        Raises:
          CompilerError: the compiler's output is not an ELF object.
        """
        assert self._ended, "the compile is not over"
        data = self._backend.read_object()
        try:
            size = read_object_size(data)
        except UserError as error:
            raise CompilerError(f"{self._module_name}: {error}") from error
        decisions = np.array(self._decisions, np.int8)
        return CompiledModule(size, data, decisions, tuple(self._remarks.callees))

    def close(self) -> None:
        """End the compile and release its resources; may be called again."""
        if not self._closed:
            self._closed = True
            self._backend.finish()

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
        # The host does not poll stderr, which would wake it twice for each call site. It reads
        # stderr with each call site, and now and then, so that the pipe never stays full.
        # Only time spent here counts: the policy may take as long as it likes.
        began_s = time.monotonic()
        ready = self._poll.poll(self._drain_every_ms)
        self._waited_s += time.monotonic() - began_s
        if not ready:
            self._remarks.drain()
            if self._waited_s < self._timeout_s:
                return
            raise CompilerError(
                f"{self._module_name}: expected an object within {self._timeout_s:g} s, found a "
                f"compiler still busy after {len(self._decisions)} decisions; it was stopped: "
                "raise the time limit or leave the module out"
            )
        if any(fd == self._backend.end_fd for fd, _ in ready):
            try:
                self._ended = self._backend.poll_end()
            except CompilerError as error:
                self._remarks.drain()
                complaint = self._remarks.complaint()
                raise CompilerError(f"{self._module_name}: {error}{complaint}") from error
        self._channel.pump()

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compile_without_advice(module_name: str, backend: Backend, timeout_s: float) -> CompiledModule:
    """Wait for a compile that asks for no decisions, and return its object.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    how = "", timeout_s, _DRAIN_EVERY_MS_WITHOUT_ADVICE
    with (
        contextlib.closing(Channel()) as channel,
        Compilation(module_name, backend, channel, *how) as compilation,
    ):
        assert compilation.next_site() is None, "advice was asked for without a channel"
        return compilation.result()
