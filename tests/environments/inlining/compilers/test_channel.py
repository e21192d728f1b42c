"""The channel's parser against streams cut anywhere, and the pipes themselves."""

from __future__ import annotations

import json
import os
import pathlib
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.inlining.compilers.channel import Channel, Header, ProtocolError, StreamParser

ADVICE = {"name": "inlining_decision", "type": "int64_t", "port": 0, "shape": [1]}
TYPES = {"int64_t": "<i8", "int32_t": "<i4", "float": "<f4", "double": "<f8", "uint8_t": "<u1"}


def spec(name: str, type_name: str, shape: tuple[int, ...] = (1,)) -> dict:
    return {"name": name, "type": type_name, "port": 0, "shape": list(shape)}


def header_line(features: list[dict]) -> bytes:
    return json.dumps({"features": features, "advice": ADVICE}).encode() + b"\n"


def parse_all(pieces: list[bytes]) -> list[bytes]:
    parser, observations = StreamParser(), []
    for piece in pieces:
        parser.feed(piece)
        while (observation := parser.next_observation()) is not None:
            observations.append(observation)
    assert parser.pending_bytes == 0
    return observations


@st.composite
def streams(draw) -> tuple[bytes, bytes]:
    """A stream as LLVM writes it, and the tensors of all its observations one after another."""
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    shapes = [draw(st.sampled_from([(1,), (2,), (2, 3)])) for _ in types]
    features = [
        spec(f"f{i}", name, shape)
        for i, (name, shape) in enumerate(zip(types, shapes, strict=True))
    ]
    row_bytes = sum(
        np.dtype(TYPES[name]).itemsize * int(np.prod(shape))
        for name, shape in zip(types, shapes, strict=True)
    )
    stream, tensors = [header_line(features)], []
    for number in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            stream.append(b'{"context":"module"}\n')
        # Any bytes may occur in a tensor: newlines and braces too.
        tensors.append(draw(st.binary(min_size=row_bytes, max_size=row_bytes)))
        stream += [b'{"observation":%d}\n' % number, tensors[-1], b"\n"]
    return b"".join(stream), b"".join(tensors)


@given(streams(), st.lists(st.integers(0, 2000), max_size=30))
def test_any_cutting_gives_the_same_observations(stream, cuts):
    data, tensors = stream
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert b"".join(parse_all(pieces)) == tensors


@given(st.binary(min_size=1))
def test_what_is_no_header_is_a_protocol_error(garbage):
    parser = StreamParser()
    parser.feed(garbage.replace(b"\n", b"") + b"\n")
    with pytest.raises(ProtocolError, match="expected a JSON header"):
        parser.next_observation()


@given(st.binary(min_size=1))
def test_what_follows_the_header_is_checked(garbage):
    parser = StreamParser()
    parser.feed(header_line([spec("f", "int64_t")]) + b"x" + garbage.replace(b"\n", b"") + b"\n")
    with pytest.raises(ProtocolError, match="expected 'context' or 'observation'"):
        parser.next_observation()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"features": [], "advice": {"type": "int128_t"}}',
        header_line([spec("f", "int64_t", (-1,))]).strip(),
        header_line([spec("f", "int64_t"), spec("f", "int64_t")]).strip(),
        b'{"features": [{"name": 1, "type": "float", "shape": [1]}], "advice": {"type": "float"}}',
    ],
    ids=["deeply-nested", "unknown-type", "negative-shape", "name-twice", "number-for-a-name"],
)
def test_a_wrong_header_is_a_protocol_error(line):
    with pytest.raises(ProtocolError, match="expected a JSON header"):
        Header.parse(line)


def test_tensors_of_the_wrong_length_are_a_protocol_error():
    parser = StreamParser()
    parser.feed(header_line([spec("f", "int64_t")]) + b'{"observation":0}\n' + b"\0" * 12)
    with pytest.raises(ProtocolError, match="expected a newline after 8 bytes"):
        parser.next_observation()


def test_an_endless_line_is_a_protocol_error():
    parser = StreamParser()
    parser.feed(b"x" * (2 << 20))
    with pytest.raises(ProtocolError, match="found more than"):
        parser.next_observation()


def test_values_come_by_name():
    parser = StreamParser()
    parser.feed(header_line([spec("a", "int64_t"), spec("b", "float", (2,))]))
    parser.feed(b'{"context":"m"}\n{"observation":0}\n')
    parser.feed(np.array([-3], "<i8").tobytes() + np.array([0.5, 2], "<f4").tobytes() + b"\n")
    observation = parser.next_observation()
    assert parser.header.names == ("a", "b")
    assert parser.header.unpack(observation) == (-3, (0.5, 2.0))


def test_pipes_are_private_and_removed():
    channel = Channel()
    directory = pathlib.Path(channel.base).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for suffix in (".in", ".out"):
        mode = pathlib.Path(channel.base + suffix).stat().st_mode
        assert stat.S_ISFIFO(mode) and stat.S_IMODE(mode) == 0o600
    channel.close()
    channel.close()
    assert not directory.exists()


def test_answers_and_observations_pass_through_the_pipes():
    channel = Channel()
    try:
        # The other end, as LLVM opens it.
        out = os.open(channel.base + ".out", os.O_WRONLY)
        answers = os.open(channel.base + ".in", os.O_RDONLY)
        os.write(out, header_line([spec("f", "int64_t")]))
        os.write(out, b'{"observation":0}\n' + np.array([5], "<i8").tobytes() + b"\n")
        channel.pump()
        observation = channel.parser.next_observation()
        assert channel.parser.header.unpack(observation) == (5,)
        channel.advise(1)
        assert os.read(answers, 100) == np.array([1], "<i8").tobytes()
        with pytest.raises(ProtocolError, match="every advice to be read"):
            for _ in range(1 << 20):
                channel.advise(0)
        os.close(out)
        os.close(answers)
    finally:
        channel.close()
