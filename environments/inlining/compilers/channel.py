r"""LLVM's interactive inlining channel: the protocol, and the host's end of it.

A stock LLVM (17 or newer) runs with the options ``-enable-ml-inliner=release`` and
``-inliner-interactive-channel-base=BASE``. At every call site, it asks the process that holds the
named pipes ``BASE.out`` and ``BASE.in``. This docstring is the specification that the code below
follows.

From LLVM, on ``BASE.out``::

    {"features": [SPEC, ...], "advice": SPEC}\n            once, first
    {"context": NAME}\n                                    before the first observation
    {"observation": N}\n TENSOR TENSOR ... \n              once for each call site

``SPEC`` is ``{"name": str, "type": "int64_t" | "int32_t" | "float" | "double" | ..., "port": int,
"shape": [int, ...]}``. The tensors follow in the order of the header, little-endian, without
padding. To LLVM, on ``BASE.in``, after each observation: one tensor of the advice's type (an int64,
1 to inline and 0 not to).

What a host must know:

* Names, types and order differ between LLVM versions: only the header gives them.
* LLVM never opens the pipes for a module without decisions. This is no error.
* LLVM spins for ever when its end of ``BASE.in`` is closed, and a host that reads waits for ever
  when LLVM dies. The host therefore opens both pipes for reading *and* writing, which never blocks
  and never signals an end. It learns from the compiler's process that a compile is over.
* The host must read stderr during the whole compile, or a compiler that prints a lot blocks.
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
from environments.isolation import guardian

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
      names: names of the announced features, in stream order.
      sizes: number of elements in the tensor of each feature.
      structure: binary layout of all tensors of one observation.
      advices: the bytes to write for a decision of 0 and for a decision of 1.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    structure: struct.Struct
    advices: tuple[bytes, bytes]

    @classmethod
    def parse(cls, line: bytes) -> Header:
        """Parse the header line.

        Raises:
          ProtocolError: the line is not a header, or it announces an unknown tensor type.
        """
        try:
            announced = json.loads(line)
            specs = announced["features"]
            sizes = tuple(_num_elements(spec) for spec in specs)
            codes = [_CODES[spec["type"]] for spec in specs]
            advice = struct.Struct("<" + _CODES[announced["advice"]["type"]])
            names = tuple(spec["name"] for spec in specs)
            if len(set(names)) < len(names):
                raise ValueError("a name occurs twice")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ProtocolError(
                "interactive channel: expected a JSON header with 'features' and 'advice', "
                f"found {line[:80]!r} ({error}); use a compiler of LLVM 17 or newer"
            ) from error
        layout = "".join(f"{size}{code}" for size, code in zip(sizes, codes, strict=True))
        return cls(names, sizes, struct.Struct("<" + layout), (advice.pack(0), advice.pack(1)))

    def unpack(self, observation: bytes) -> tuple:
        """Return an observation's values in the order of `names`: numbers, or tuples of several."""
        numbers = self.structure.unpack(observation)
        if len(numbers) == len(self.names):
            return numbers
        ends = itertools.accumulate(self.sizes)
        return tuple(
            numbers[end - 1] if size == 1 else numbers[end - size : end]
            for size, end in zip(self.sizes, ends, strict=True)
        )


def _num_elements(spec: dict) -> int:
    shape = [int(length) for length in spec["shape"]]
    if not isinstance(spec["name"], str) or min(shape, default=1) < 1:
        raise ValueError(f"no tensor: {spec}")
    return math.prod(shape)


class StreamParser:
    """Turns the bytes of ``BASE.out`` into observations, however the pipe cuts them into pieces.

    The parser does no input or output: `feed` takes the bytes and `next_observation` returns the
    observations.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Add bytes in the order in which they arrived."""
        self._buffer += data

    def next_observation(self) -> bytes | None:
        """Return the bytes of the next observation's tensors; None if some have not arrived.

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
        """Move into the parser what LLVM has written so far, without waiting."""
        try:
            while data := os.read(self.observation_fd, _READ_BYTES):
                self.parser.feed(data)
                if len(data) < _READ_BYTES:
                    return
        except BlockingIOError:
            return

    def advise(self, decision: int) -> None:
        """Answer the last observation with a decision: 1 to inline, 0 not to.

        Raises:
          ProtocolError: the pipe is full, because LLVM reads no answers.
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
        """Write answers into the pipe before LLVM asks for them."""
        os.write(self._advice_fd, answers)

    def restart(self) -> None:
        """Forget the stream so far: the next compile begins with a header of its own."""
        self.pump()
        self.parser = StreamParser()

    def close(self) -> None:
        """Close the pipes and remove their directory; may be called again."""
        while self._fds:
            os.close(self._fds.pop())
        self._directory.cleanup()
