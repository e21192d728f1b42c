"""Values arrive on a socket as they were sent."""

from __future__ import annotations

import socket

import ml_dtypes
import numpy as np
import pytest

from environments.isolation import wire

DTYPES = ("f2", "f4", "f8", "i1", "u2", "i8", "?", ml_dtypes.bfloat16)
NUMBERS = np.arange(12).reshape(3, 4)
ARRAYS = [
    *(NUMBERS.astype(dtype) for dtype in DTYPES),
    np.array([np.nan, -np.inf, -0.0]),
    np.array(7),
    np.empty((0, 3), np.float32),
    NUMBERS.T,
    NUMBERS[::2, 1:3],
    np.array([["a", "é"], ["", "\0"]], object),
]
SCALARS = [None, True, False, 0, -(2**60), 0.5, "", "é\0\n", b"", bytes(range(256))]
NESTED = {"lists": [[], [SCALARS]], 7: {}, None: {True: ARRAYS[0], "b": b"x"}, 0.5: {"a": ARRAYS}}


def same(sent, received) -> bool:
    if isinstance(sent, np.ndarray):
        pairs = zip(sent.ravel().tolist(), received.ravel().tolist(), strict=True)
        equal = all(repr(left) == repr(right) for left, right in pairs)
        return equal and (sent.dtype, sent.shape) == (received.dtype, received.shape)
    if isinstance(sent, dict):
        return list(sent) == list(received) and all(same(sent[key], received[key]) for key in sent)
    if isinstance(sent, list):
        return len(sent) == len(received) and all(map(same, sent, received))
    return type(sent) is type(received) and sent == received


def test_values_arrive_as_they_were():
    mine, its = socket.socketpair()
    with mine, its:
        for value in (*SCALARS, *ARRAYS, SCALARS, NESTED):
            wire.send(mine, value)
            assert same(value, wire.receive(its))
        wire.send(mine, {"text": np.array([b"a\xff"]), "number": np.float32(0.5)})
        assert wire.receive(its) == {"text": np.array(["a\udcff"], object), "number": 0.5}
        mine.close()
        with pytest.raises(EOFError):
            wire.receive(its)
