"""Messages arrive whole and in order, however the socket cuts them."""

from __future__ import annotations

import socket
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from tfrl_systems.drivers.pipes.messages import Channel, RemoteError, pickled, unpickled

MESSAGES = st.tuples(
    st.one_of(st.none(), st.text(max_size=9), st.tuples(st.booleans(), st.floats(0, 9))),
    st.one_of(st.binary(max_size=40), st.integers(0, 300_000).map(bytes)),
)


@given(st.lists(MESSAGES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_neither_end_of_a_socket_that_does_not_block_waits(messages):
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    sender, receiver = (Channel(end) for end in ends)
    for message in messages:
        sender.send(*message)
    received = []
    while len(received) < len(messages):
        message = receiver.receive()
        if message is None:
            assert sender.has_unsent
            sender.flush()
        else:
            received.append(message)
    assert received == messages
    assert receiver.receive() is None and not sender.has_unsent
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_a_message_that_ends_in_the_middle_is_none():
    mine, its = socket.socketpair()
    channel = Channel(mine)
    for cut in (1, 15, 20):
        Channel(its).send("head", b"payload")
        whole = mine.recv(1000)
        its.sendall(whole[:cut])
        mine.setblocking(False)
        assert channel.receive() is None
        its.sendall(whole[cut:])
        assert channel.receive() == ("head", b"payload")
        mine.setblocking(True)
    its.sendall(whole[:20])
    its.close()
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()


@pytest.mark.parametrize(
    "error, message, is_user_error",
    [
        (ValueError("two\n  lines"), "ValueError: two lines", False),
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
    payloads = [pickled(value) for value in ([point()], [point(), lambda: 4])]
    monkeypatch.delattr(script, "Point")
    first, (second, four) = map(unpickled, payloads)
    assert first[0].x == second.x == 3 and four() == 4
