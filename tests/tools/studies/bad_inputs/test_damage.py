"""Damages follow from a right input, worked by hand."""

from __future__ import annotations

import json

import onnx

from tools.studies.bad_inputs.damage import (
    FAILURE,
    PERHAPS,
    flips,
    in_directory,
    wrong_json,
    wrong_messages,
)


def test_each_field_of_json_gets_each_wrong_value():
    wrong = {damage.what: damage for damage in wrong_json({"a": {"b": 1}}, 2)}
    assert json.loads(wrong["a is missing"].content) == {}
    assert json.loads(wrong["a.b is missing"].content) == {"a": {}}
    assert json.loads(wrong["a.b is null"].content) == {"a": {"b": None}}
    # Another value may happen to be right; what is no JSON is not.
    assert wrong["a.b is true"].status == PERHAPS and wrong["b'[]'"].status == FAILURE


def test_each_field_of_a_message_is_missing_or_wrong():
    model = onnx.ModelProto(ir_version=8, producer_name="p")
    wrong = dict(wrong_messages(model))
    read = {what: onnx.ModelProto.FromString(content) for what, content in wrong.items()}
    assert not read["irVersion is missing"].HasField("ir_version")
    assert read["irVersion is a negative number"].ir_version == -1 and model.ir_version == 8
    assert read["producerName is two lines"].producer_name == "a\nb"
    assert "irVersion is an object" not in read  # such a message cannot be written


def test_flips_differ_in_a_few_bits_and_by_seed():
    (first, second), (reseeded, _) = flips(bytes(9), 0, 2), flips(bytes(9), 1, 2)
    assert sum(first.content).bit_count() == 1 and first.content != reseeded.content
    assert 0 < sum(byte.bit_count() for byte in second.content) <= 2


def test_one_file_of_a_directory_is_damaged():
    wrong = {damage.what: damage.content for damage in in_directory({"a": b"x", "b": b"y"}, "b")}
    assert wrong["b: missing"] == {"a": b"x"} and wrong["b: empty"] == {"a": b"x", "b": b""}
