"""Frames arrive whole and in order, however the socket cuts them."""

from __future__ import annotations

import socket
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from tfrl_systems.drivers.wire import Channel, Frame, Kind, pickled, trouble_of, unpickled

FRAMES = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.one_of(st.binary(max_size=40), st.integers(0, 300_000).map(bytes)),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.floats(allow_nan=False),
)


@given(st.lists(FRAMES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_neither_end_of_a_socket_that_does_not_block_waits(frames):
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    sender, receiver = (Channel(end) for end in ends)
    for frame in frames:
        sender.send(frame)
    received = []
    while len(received) < len(frames):
        frame = receiver.receive()
        if frame is None:
            assert sender.has_unsent
            sender.flush()
        else:
            received.append(frame)
    assert received == frames
    assert receiver.receive() is None
    assert sender.is_between_frames and receiver.is_between_frames
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_a_frame_that_ends_in_the_middle_is_no_frame():
    mine, its = socket.socketpair()
    channel = Channel(mine)
    whole = Frame(Kind.RESULT, b"payload", 7)
    for cut in (1, 30, 39):
        Channel(its).send(whole)
        head = mine.recv(1000)
        its.sendall(head[:cut])
        mine.setblocking(False)
        assert channel.receive() is None and not channel.is_between_frames
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
    frame = Frame(Kind.LOAD, bytes(3_000_000), 1)
    thread = threading.Thread(target=mine.send, args=(frame,))
    thread.start()
    assert its.receive() == frame
    thread.join()
    mine.close()
    its.close()


@pytest.mark.parametrize(
    "error, message, is_users",
    [
        (ValueError("two\n  lines"), "ValueError: two lines", False),
        (KeyError(), "KeyError", False),
        (UserError("a: expected b, found c; do d"), "a: expected b, found c; do d", True),
    ],
)
def test_exceptions_travel_as_text(error, message, is_users):
    try:
        raise error
    except Exception as caught:
        trouble = trouble_of(caught)
    assert (trouble.message, trouble.is_users) == (message, is_users)
    assert trouble.traceback.startswith("Traceback") and "raise error" in trouble.traceback


def test_what_a_script_defines_travels_with_it(monkeypatch):
    """The other process has another script, where a name of this one says nothing."""
    script = sys.modules["__main__"]
    point = type("Point", (), {"__module__": "__main__", "x": 3})
    monkeypatch.setattr(script, "Point", point, raising=False)
    payloads = [pickled(value) for value in ([point()], [point(), lambda: 4], Frame(Kind.JOB))]
    monkeypatch.delattr(script, "Point")
    first, (second, four), frame = map(unpickled, payloads)
    assert first[0].x == second.x == 3 and four() == 4
    assert frame == Frame(Kind.JOB)
