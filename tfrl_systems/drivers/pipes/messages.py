"""The messages between a pool and its workers, over a socket that no one else can reach.

A message is a head, which is any value, and a payload in bytes::

    to the worker      (its sys.path, PYTHONPATH), pickled make_runner      the first
                       (method of `worker.Worker`, further arguments …), its first argument
    to the pool        (is_error, seconds), payload      of the `worker.Answer` to each, in order

The sizes of head and payload come first, uint64 each; the head is `pickled`.

No other module of the project pickles. A process unpickles only what its own parent or child wrote,
or in a Ray cluster what a pool and its workers wrote, and pickled data are never stored.
"""

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from collections import deque
from typing import Any, NamedTuple

import cloudpickle

from environments.errors import UserError, one_line
from tfrl_systems.drivers.jobs import PoolError

_SIZES = struct.Struct("<QQ")


class RemoteError(NamedTuple):
    """An exception as text, to be sent to another process.

    Attributes:
      message: the exception's message in one line.
      traceback: traceback in the worker.
      is_user_error: whether it is a `UserError`, which the user can mend.
      is_out_of_memory: whether the process had no memory left. It is then of no more use, but
        another one may do the same thing.
    """

    message: str
    traceback: str = ""
    is_user_error: bool = False
    is_out_of_memory: bool = False

    @classmethod
    def of(cls, error: Exception) -> RemoteError:
        """Return the text of the exception that is being handled."""
        return cls(
            one_line(error),
            traceback.format_exc(),
            isinstance(error, UserError),
            isinstance(error, MemoryError),
        )

    def exception(self, where: str) -> UserError:
        """Return the exception to raise in the caller's process; `where` it happened to a pool."""
        return (
            UserError(self.message) if self.is_user_error else PoolError(f"{where}: {self.message}")
        )


def pickled(value: Any) -> bytes:
    """Return `value` in bytes, with the functions and classes that a notebook or script defines."""
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return cloudpickle.dumps(value)
    # pickle takes a tenth of cloudpickle's time, but stores a script's definitions by name only.
    return cloudpickle.dumps(value) if b"__main__" in data else data


def unpickled(data: bytes | bytearray) -> Any:
    """Return the value from which `pickled` made `data`."""
    return pickle.loads(data)


class Channel:
    """One end of the socket between a pool and a worker.

    On a blocking socket, `send` returns when the whole message is sent, and `receive` when a whole
    message has arrived. On a non-blocking socket, `send` keeps what it cannot send at once for
    `flush`, and `receive` returns None if no whole message has arrived. So neither waits for a
    worker that hangs.

    Args:
      end: the socket; the channel owns it from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unsent: deque[memoryview] = deque()
        self._sizes = bytearray(_SIZES.size)
        self._body: bytearray | None = None
        self._num_read = 0

    def fileno(self) -> int:
        """Return the socket's file descriptor, for selectors."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Return whether `flush` has something to send."""
        return bool(self._unsent)

    def send(self, head: Any, payload: bytes | bytearray = b"") -> None:
        """Send a message, or at least begin to.

        Raises:
          OSError: the other end is closed.
        """
        head_pickled = pickled(head)
        sizes = _SIZES.pack(len(head_pickled), len(payload))
        self._unsent += [memoryview(part) for part in (sizes, head_pickled, payload) if part]
        self.flush()

    def flush(self) -> None:
        """Send as much of what is unsent as the socket takes.

        Raises:
          OSError: the other end is closed.
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

    def receive(self) -> tuple[Any, bytearray] | None:
        """Return the next message; None if it has not arrived and the socket does not block.

        Raises:
          EOFError: the other end is closed, and everything that it sent was received.
        """
        if self._body is None:
            if not self._fill(self._sizes):
                return None
            self._body = bytearray(sum(_SIZES.unpack(self._sizes)))
        if not self._fill(self._body):
            return None
        body, self._body = self._body, None
        head_size, _ = _SIZES.unpack(self._sizes)
        return unpickled(body[:head_size]), body[head_size:]

    def _fill(self, buffer: bytearray) -> bool:
        """Read until the buffer is full; return False if this would block."""
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
        """Close this end."""
        self._socket.close()
