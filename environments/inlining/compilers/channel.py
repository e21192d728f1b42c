r"""LLVM's interactive inlining channel: the protocol, and the host's end of it.

A stock LLVM (17 or newer) that runs with ``-enable-ml-inliner=release`` and
``-inliner-interactive-channel-base=BASE`` asks whoever holds the named pipes ``BASE.out`` and
``BASE.in`` about every call site. This docstring is the specification that the code below follows.

From LLVM, on ``BASE.out``::

    {"features": [SPEC, ...], "advice": SPEC}\n            once, first
    {"context": NAME}\n                                    before the first observation
    {"observation": N}\n TENSOR TENSOR ... \n              once for each call site

``SPEC`` is ``{"name": str, "type": "int64_t" | "int32_t" | "float" | "double" | ..., "port": int,
"shape": [int, ...]}``. The tensors follow in the order of the header, little-endian, without
padding. To LLVM, on ``BASE.in``, after each observation: one tensor of the advice's type (an int64,
1 to inline and 0 not to).

What a host must know:

* Names, types and order differ between LLVM versions: only the header tells them.
* A module without decisions never opens the pipes, which is no error.
* LLVM spins for ever when its end of ``BASE.in`` is closed, and a host that reads waits for ever
  when LLVM dies. Both pipes are therefore opened here for reading *and* writing, which never blocks
  and never signals an end; that a compile is over is learned from the compiler's process.
* stderr must be drained all the while, or a talkative compiler blocks.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import pathlib
import struct

from environments.errors import UserError
from environments.inlining.compilers import guardian

_CODES = {
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
    "float": "f",
    "double": "d",
}
_MAX_LINE_BYTES = 1 << 20
_READ_BYTES = 1 << 13
_NEWLINE = ord("\n")


class ProtocolError(UserError):
    """The stream is not LLVM's interactive channel protocol."""


@dataclasses.dataclass(frozen=True)
class Header:
    """What LLVM announces before its first observation.

    Attributes:
      names: the announced features, in stream order.
      sizes: numbers in the tensor of each.
      structure: all tensors of one observation.
      advices: what is written for a decision of 0 and for one of 1.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    structure: struct.Struct
    advices: tuple[bytes, bytes]

    @classmethod
    def parse(cls, line: bytes) -> Header:
        """Reads the header line.

        Raises:
          ProtocolError: the line is no header, or announces an unknown tensor type.
        """
        try:
            announced = json.loads(line)
            features = [_Feature.parse(spec) for spec in announced["features"]]
            advice = struct.Struct("<" + _CODES[announced["advice"]["type"]])
            names = tuple(feature.name for feature in features)
            if len(set(names)) < len(names):
                raise ValueError("a name occurs twice")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ProtocolError(
                "interactive channel: expected a JSON header with 'features' and 'advice', "
                f"found {line[:80]!r} ({error}); use a compiler of LLVM 17 or newer"
            ) from error
        structure = struct.Struct("<" + "".join(f"{one.size}{one.code}" for one in features))
        sizes = tuple(feature.size for feature in features)
        return cls(names, sizes, structure, (advice.pack(0), advice.pack(1)))

    def unpack(self, observation: bytes) -> tuple:
        """The values of an observation in the order of `names`: numbers, or tuples of several."""
        numbers = self.structure.unpack(observation)
        if len(numbers) == len(self.names):
            return numbers
        ends = itertools.accumulate(self.sizes)
        return tuple(
            numbers[end - 1] if size == 1 else numbers[end - size : end]
            for size, end in zip(self.sizes, ends, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class _Feature:
    """One announced tensor: its name, the code of its type and how many numbers it holds."""

    name: str
    code: str
    size: int

    @classmethod
    def parse(cls, spec: dict) -> _Feature:
        shape = [int(length) for length in spec["shape"]]
        if not isinstance(spec["name"], str) or min(shape, default=1) < 1:
            raise ValueError(f"no tensor: {spec}")
        return cls(spec["name"], _CODES[spec["type"]], math.prod(shape))


class StreamParser:
    """Turns the bytes of ``BASE.out``, however they are cut, into observations.

    The parser does no input or output: bytes go in by `feed`, observations come out of
    `next_observation`.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Adds bytes as they arrived."""
        self._buffer += data

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not yet part of a complete observation."""
        return len(self._buffer)

    def next_observation(self) -> bytes | None:
        """Returns the next complete observation, or None until more bytes arrive.

        Returns:
          Its tensors as they came; `Header.unpack` tells their values.

        Raises:
          ProtocolError: the bytes do not follow the protocol.
        """
        while self._buffer:
            end = self._buffer.find(b"\n")
            if end < 0:
                if len(self._buffer) > _MAX_LINE_BYTES:
                    raise ProtocolError(
                        "interactive channel: expected a line of JSON, found more than "
                        f"{_MAX_LINE_BYTES} bytes without one; use a compiler of LLVM 17 or newer"
                    )
                return None
            if self.header is not None and self._buffer.startswith(b'{"observation"'):
                return self._take_tensors(self.header.structure.size, end + 1)
            line = self._buffer[:end]
            self._buffer = self._buffer[end + 1 :]
            if self.header is None:
                self.header = Header.parse(line)
            elif not line.startswith(b'{"context"'):
                raise ProtocolError(
                    "interactive channel: expected 'context' or 'observation', "
                    f"found {line[:80]!r}; use a compiler of LLVM 17 or newer"
                )
        return None

    def _take_tensors(self, num_bytes: int, start: int) -> bytes | None:
        end = start + num_bytes
        if len(self._buffer) <= end:
            return None
        observation = self._buffer[start:end]
        if self._buffer[end] != _NEWLINE:
            raise ProtocolError(
                f"interactive channel: expected a newline after {num_bytes} bytes of tensors, "
                f"found {self._buffer[end : end + 8]!r}; the announced shapes are wrong"
            )
        self._buffer = self._buffer[end + 1 :]
        return observation


class Channel:
    """The two named pipes, in a private directory that `close` removes."""

    def __init__(self) -> None:
        self._directory = guardian.make_directory()
        self.base = str(pathlib.Path(self._directory.name) / "channel")
        self._fds: list[int] = []
        try:
            for suffix in (".in", ".out"):
                os.mkfifo(self.base + suffix, 0o600)
                flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
                self._fds.append(os.open(self.base + suffix, flags))
        except OSError as error:
            self.close()
            raise UserError(
                f"interactive channel: expected to make a named pipe {self.base}, found: {error}; "
                "free some space, or set TMPDIR to a file system that has named pipes"
            ) from error
        self._advice_fd, self.observation_fd = self._fds
        self.parser = StreamParser()

    def pump(self) -> None:
        """Moves what LLVM has written so far into the parser, without waiting."""
        try:
            while data := os.read(self.observation_fd, _READ_BYTES):
                self.parser.feed(data)
                if len(data) < _READ_BYTES:
                    return
        except BlockingIOError:
            return

    def advise(self, decision: int) -> None:
        """Answers the observation that was read last.

        Raises:
          ProtocolError: the answers so far were never read.
        """
        assert self.parser.header is not None, "an advice answers an observation"
        try:
            os.write(self._advice_fd, self.parser.header.advices[decision])
        except BlockingIOError as error:
            raise ProtocolError(
                "interactive channel: expected every advice to be read, found thousands that were "
                "not; use a compiler of LLVM 17 or newer"
            ) from error

    def answer_ahead(self, answers: bytes) -> None:
        """Leaves answers in the pipe for observations that are still to come."""
        os.write(self._advice_fd, answers)

    def restart(self) -> None:
        """Forgets the stream so far: the next compile begins with a header of its own."""
        self.pump()
        self.parser = StreamParser()

    def close(self) -> None:
        """Closes the pipes and removes their directory; may be called again."""
        while self._fds:
            os.close(self._fds.pop())
        self._directory.cleanup()
