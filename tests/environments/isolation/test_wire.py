"""Values arrive on a socket as they were sent."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from environments.isolation import wire

SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text() | st.binary()


ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in ("f2", "f4", "f8", "i1", "u2", "i8", "?")]),
    hnp.array_shapes(min_dims=0, min_side=0),
)


VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers(0, 99), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(sent, received) -> bool:
    if isinstance(sent, np.ndarray):
        equal = np.array_equal(sent, received, equal_nan=sent.dtype.kind == "f")
        return isinstance(received, np.ndarray) and sent.dtype == received.dtype and equal
    if isinstance(sent, dict):
        return list(sent) == list(received) and all(same(sent[key], received[key]) for key in sent)
    if isinstance(sent, list):
        return len(sent) == len(received) and all(map(same, sent, received))
    return type(sent) is type(received) and sent == received


@given(VALUES)
@settings(max_examples=40)
def test_values_arrive_as_they_were(value):
    mine, its = socket.socketpair()
    with mine, its:
        wire.send(mine, value)
        assert same(value, wire.receive(its))
        mine.close()
        with pytest.raises(EOFError):
            wire.receive(its)


def test_texts_arrive_as_texts():
    mine, its = socket.socketpair()
    with mine, its:
        wire.send(mine, {"y": np.array([["a", "é"]], object)})
        assert wire.receive(its)["y"].tolist() == [["a", "é"]]
