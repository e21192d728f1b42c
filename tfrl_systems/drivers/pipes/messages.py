"""The messages between a pool and its workers, over a socket that no one else can reach.

A message is a header and a payload of as many bytes as the header says::

    kind     uint8     a `Kind`
    number   int64     of the job, or the version of the data
    version  int64     of a job: the data that it needs
    seconds  float64   of a result: how long the worker took for it
    size     uint64    of the payload, in bytes

    to the worker      START   what `pickled` makes of (sys.path, PYTHONPATH, pickled make_runner)
                       LOAD    the pickled data that were broadcast; number is their version
                       JOB     a pickled job
    to the pool        READY   the runner is made
                       LOADED  number is the version
                       RESULT  a pickled result; number is that of the job
                       START_FAILED, LOAD_FAILED, JOB_FAILED   a pickled `RemoteError`

This is the only place of the project that pickles: nothing is read but what a parent and the child
that it started itself write to each other, and nothing of it is ever kept.
"""

from __future__ import annotations

import enum
import pickle
import socket
import struct
import traceback
from collections import deque
from typing import Any, NamedTuple

import cloudpickle

from environments.errors import UserError
from tfrl_systems.drivers.pool_parts import one_line

_HEADER = struct.Struct("<BqqdQ")


class Kind(enum.IntEnum):
    """What a message says."""

    START = 1
    LOAD = 2
    JOB = 3
    READY = 4
    LOADED = 5
    RESULT = 6
    START_FAILED = 7
    LOAD_FAILED = 8
    JOB_FAILED = 9


class Message(NamedTuple):
    """A header and its payload; the fields are those of the header."""

    kind: Kind
    payload: bytes | bytearray = b""
    number: int = 0
    version: int = 0
    seconds: float = 0.0


class RemoteError(NamedTuple):
    """An exception on its way to another process, as text.

    Attributes:
      message: one line.
      traceback: of the worker.
      is_user_error: the user can mend it (`UserError`).
    """

    message: str
    traceback: str
    is_user_error: bool

    @classmethod
    def of(cls, error: Exception) -> RemoteError:
        """The text of an exception that is being handled."""
        return cls(one_line(error), traceback.format_exc(), isinstance(error, UserError))


def pickled(value: Any) -> bytes:
    """`value` in bytes; what a notebook or a script defines itself travels with it."""
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return cloudpickle.dumps(value)
    # A tenth of cloudpickle's time; but of what is in the script it has only the name.
    return cloudpickle.dumps(value) if b"__main__" in data else data


def unpickled(data: bytes | bytearray) -> Any:
    """The value of which `pickled` made `data`."""
    return pickle.loads(data)


class Channel:
    """One end of the socket between a pool and a worker.

    On a blocking socket, `send` returns when all is sent and `receive` when there is a message. On
    one that does not block, `send` keeps what does not go at once for `flush`, and `receive`
    returns None where a message is not there as a whole: so neither waits for a worker that hangs.

    Args:
      end: is owned by the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unsent: deque[memoryview] = deque()
        self._header = bytearray(_HEADER.size)
        self._payload: bytearray | None = None
        self._num_read = 0

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._unsent)

    @property
    def is_between_messages(self) -> bool:
        """Whether no message is sent or received in part."""
        return not self._unsent and self._payload is None and self._num_read == 0

    def send(self, message: Message) -> None:
        """Sends, or begins to send, a message.

        Raises:
          OSError: there is no one at the other end.
        """
        kind, payload, number, version, seconds = message
        header = _HEADER.pack(kind, number, version, seconds, len(payload))
        self._unsent.append(memoryview(header))
        if payload:
            self._unsent.append(memoryview(payload))
        self.flush()

    def flush(self) -> None:
        """Sends what is unsent, as much as goes.

        Raises:
          OSError: there is no one at the other end.
        """
        while self._unsent:
            try:
                num_sent = self._socket.sendmsg(list(self._unsent)[:16])
            except BlockingIOError:
                return
            while self._unsent and num_sent >= len(self._unsent[0]):
                num_sent -= len(self._unsent.popleft())
            if num_sent:
                self._unsent[0] = self._unsent[0][num_sent:]

    def receive(self) -> Message | None:
        """The next message.

        Raises:
          EOFError: there is no one at the other end, and all that was sent is received.
        """
        if self._payload is None:
            if not self._fill(self._header):
                return None
            self._payload = bytearray(_HEADER.unpack(self._header)[-1])
        if not self._fill(self._payload):
            return None
        kind, number, version, seconds, _ = _HEADER.unpack(self._header)
        payload, self._payload = self._payload, None
        return Message(Kind(kind), payload, number, version, seconds)

    def _fill(self, buffer: bytearray) -> bool:
        """Reads until the buffer is full; False where that would mean to wait."""
        while self._num_read < len(buffer):
            try:
                num_read = self._socket.recv_into(memoryview(buffer)[self._num_read :])
            except BlockingIOError:
                return False
            except ConnectionResetError as error:
                raise EOFError from error
            if not num_read:
                raise EOFError
            self._num_read += num_read
        self._num_read = 0
        return True

    def close(self) -> None:
        """Closes this end."""
        self._socket.close()
