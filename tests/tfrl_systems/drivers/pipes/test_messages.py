"""Messages arrive whole and in order, however the socket cuts them."""

from __future__ import annotations

import socket
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from tfrl_systems.drivers.pipes.messages import (
    Channel,
    Kind,
    Message,
    RemoteError,
    pickled,
    unpickled,
)

MESSAGES = st.builds(
    Message,
    st.sampled_from(Kind),
    st.one_of(st.binary(max_size=40), st.integers(0, 300_000).map(bytes)),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.floats(allow_nan=False),
)


@given(st.lists(MESSAGES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_neither_end_of_a_socket_that_does_not_block_waits(messages):
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    sender, receiver = (Channel(end) for end in ends)
    for message in messages:
        sender.send(message)
    received = []
    while len(received) < len(messages):
        message = receiver.receive()
        if message is None:
            assert sender.has_unsent
            sender.flush()
        else:
            received.append(message)
    assert received == messages
    assert receiver.receive() is None
    assert sender.is_between_messages and receiver.is_between_messages
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_a_message_that_ends_in_the_middle_is_none():
    mine, its = socket.socketpair()
    channel = Channel(mine)
    whole = Message(Kind.RESULT, b"payload", 7)
    for cut in (1, 30, 39):
        Channel(its).send(whole)
        head = mine.recv(1000)
        its.sendall(head[:cut])
        mine.setblocking(False)
        assert channel.receive() is None and not channel.is_between_messages
        its.sendall(head[cut:])
        assert channel.receive() == whole
        mine.setblocking(True)
    its.sendall(head[:20])
    its.close()
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()


def test_blocking_ends_wait_for_each_other():
    mine, its = (Channel(end) for end in socket.socketpair())
    message = Message(Kind.LOAD, bytes(3_000_000), 1)
    thread = threading.Thread(target=mine.send, args=(message,))
    thread.start()
    assert its.receive() == message
    thread.join()
    mine.close()
    its.close()


@pytest.mark.parametrize(
    "error, message, is_user_error",
    [
        (ValueError("two\n  lines"), "ValueError: two lines", False),
        (KeyError(), "KeyError", False),
        (UserError("a: expected b, found c; do d"), "a: expected b, found c; do d", True),
    ],
)
def test_exceptions_travel_as_text(error, message, is_user_error):
    try:
        raise error
    except Exception as caught:
        sent = RemoteError.of(caught)
    assert (sent.message, sent.is_user_error) == (message, is_user_error)
    assert sent.traceback.startswith("Traceback") and "raise error" in sent.traceback


def test_what_a_script_defines_travels_with_it(monkeypatch):
    """The other process has another script, where a name of this one says nothing."""
    script = sys.modules["__main__"]
    point = type("Point", (), {"__module__": "__main__", "x": 3})
    monkeypatch.setattr(script, "Point", point, raising=False)
    payloads = [pickled(value) for value in ([point()], [point(), lambda: 4], Message(Kind.JOB))]
    monkeypatch.delattr(script, "Point")
    first, (second, four), message = map(unpickled, payloads)
    assert first[0].x == second.x == 3 and four() == 4
    assert message == Message(Kind.JOB)
