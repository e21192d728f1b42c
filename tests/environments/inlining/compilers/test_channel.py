"""The channel's parser against streams cut anywhere, and the pipes themselves."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import stat

import numpy as np
import pytest

from environments.inlining.compilers.channel import Channel, ProtocolError, StreamParser

ADVICE = {"name": "inlining_decision", "type": "int64_t", "port": 0, "shape": [1]}


def spec(name: str, type_name: str, shape: tuple[int, ...] = (1,)) -> dict:
    return {"name": name, "type": type_name, "port": 0, "shape": list(shape)}


def header_line(features: list[dict]) -> bytes:
    return json.dumps({"features": features, "advice": ADVICE}).encode() + b"\n"


def test_any_cutting_gives_the_same_observations():
    types = [("f8", "double", (1,)), ("u1", "uint8_t", (2, 3)), ("i4", "int32_t", (2,))]
    row_bytes = sum(np.dtype(code).itemsize * int(np.prod(shape)) for code, _, shape in types)
    stream = header_line([spec(f"f{code}", name, shape) for code, name, shape in types])
    # Any bytes may occur in a tensor: newlines, braces, what looks like the next observation.
    rows = [bytes(row_bytes), b'\n{"observation":1}\n'.ljust(row_bytes, b"{"), b"\n" * row_bytes]
    for number, row in enumerate(rows):
        context = b'{"context":"module"}\n' if number != 1 else b""
        stream += context + b'{"observation":%d}\n' % number + row + b"\n"
    cuts = [[k, k + 1] for k in range(len(stream))] + [list(range(len(stream)))]
    for places in cuts:
        parser, observations = StreamParser(), []
        for begin, end in itertools.pairwise([0, *places, len(stream)]):
            parser.feed(stream[begin:end])
            while (observation := parser.next_observation()) is not None:
                observations.append(observation)
        assert observations == rows and not parser._buffer


HEADER = header_line([spec("f", "int64_t")])
HEADER_OF_A_NUMBER = b'{"features": [{"name": 1, "type": "float", "shape": [1]}], "advice": '


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        *((line, "a JSON header") for line in (b"", b"null", b"\xff\0", b'{"features": 1}')),
        (b"[" * 100_000, "a JSON header"),
        (b'{"features": [], "advice": {"type": "int128_t"}}', "a JSON header"),
        (header_line([spec("f", "int64_t", (-1,))]).strip(), "a JSON header"),
        (header_line([spec("f", "int64_t"), spec("f", "int64_t")]).strip(), "a JSON header"),
        (HEADER_OF_A_NUMBER + b'{"type": "float"}}', "a JSON header"),
        (HEADER + b"x", "'context' or 'observation'"),
        (HEADER + b"xnull", "'context' or 'observation'"),
        (HEADER + b'{"observation":0}\n' + b"\0" * 12, "a newline after 8 bytes"),
    ],
    ids=lambda part: str(part[:20]),
)
def test_a_stream_that_is_none_of_llvms_is_a_protocol_error(stream, message):
    parser = StreamParser()
    parser.feed(stream + b"\n")
    with pytest.raises(ProtocolError, match=f"expected {message}"):
        parser.next_observation()


def test_an_endless_line_is_a_protocol_error():
    parser = StreamParser()
    parser.feed(b"x" * (2 << 20))
    with pytest.raises(ProtocolError, match="found more than"):
        parser.next_observation()


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
        os.write(out, header_line([spec("a", "int64_t"), spec("b", "float", (2,))]))
        values = np.array([-3], "<i8").tobytes() + np.array([0.5, 2], "<f4").tobytes()
        os.write(out, b'{"context":"m"}\n{"observation":0}\n' + values + b"\n")
        channel.pump()
        observation = channel.parser.next_observation()
        assert channel.parser.header.names == ("a", "b")
        assert channel.parser.header.unpack(observation) == (-3, (0.5, 2.0))
        channel.advise(1)
        assert os.read(answers, 100) == np.array([1], "<i8").tobytes()
        with pytest.raises(ProtocolError, match="every advice to be read"):
            for _ in range(1 << 20):
                channel.advise(0)
        os.close(out)
        os.close(answers)
    finally:
        channel.close()
