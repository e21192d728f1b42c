"""All variables travel; what does not fit is named."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.policies import variables
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


def make(**values) -> list[tf.Variable]:
    return [tf.Variable(value, name=name) for name, value in values.items()]


def test_a_fresh_policy_becomes_the_learners():
    learner = decision_rows.trained_agent()
    data = variables.to_bytes(learner.policy.variables(), version=7)
    worker = decision_rows.make_agent(margin=0.3)
    assert variables.from_bytes(worker.policy.variables(), data) == 7
    rows = decision_rows.draw(300, 31)
    decisions = [
        to_numpy(agent.policy).begin("m", decision_rows.NAMES)(rows, 0)
        for agent in (learner, worker)
    ]
    np.testing.assert_array_equal(*decisions)
    assert variables.to_bytes(worker.policy.variables(), version=7) == data


def test_no_variable_is_left_behind_because_it_is_not_trainable():
    policy = decision_rows.trained_agent().policy
    assert policy.variables() and not policy.trainable_variables
    names = {variable.name for variable in policy.variables()}
    assert {"start:0", "base:0"} <= names


def test_types_and_shapes_survive():
    source = make(a=np.float32(1.5), b=np.zeros((2, 0)), c=np.array([[True, False]]), d=[2**40])
    target = make(a=np.float32(0), b=np.ones((2, 0)), c=np.array([[False, True]]), d=[0 * 2**40])
    target[3] = tf.Variable(np.array([0]), name="d")
    source[3] = tf.Variable(np.array([2**40]), name="d")
    data = variables.to_bytes(source)
    assert variables.Packer(source).to_bytes() == data
    variables.from_bytes(target, data)
    for mine, theirs in zip(target, source, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "target, words",
    [
        (make(w=[1.0, 2.0], z=[1.0]), r"variable z:0: expected name z:0, found b:0"),
        (make(w=[1.0], b=[1.0]), r"variable w:0: expected shape \(1,\), found \(2,\)"),
        (make(w=[1, 2], b=[1.0]), r"variable w:0: expected dtype int32, found float32"),
        (make(w=[1.0, 2.0]), r"expected 1, found 2 in the buffer, .* is b:0"),
        (
            make(w=[1.0, 2.0], b=[1.0], c=0),
            r"expected 3, found 2 in the buffer, without c:0; send all",
        ),
        (
            make(s=1.0, w=[1.0, 2.0], t=1.0, b=[1.0]),
            r"expected 4, found 2 .* without s:0, t:0; send",
        ),
    ],
)
def test_a_mismatch_names_the_variable_and_changes_nothing(target, words):
    data = variables.to_bytes(make(w=[3.0, 4.0], b=[5.0]))
    before = [each.numpy().tolist() for each in target]
    with pytest.raises(variables.VariablesError, match=words):
        variables.from_bytes(target, data)
    assert [each.numpy().tolist() for each in target] == before


def test_numbers_that_keras_adds_to_names_do_not_matter():
    data = variables.to_bytes([tf.Variable([1.0], name="dense_3/kernel")])
    target = [tf.Variable([0.0], name="dense/kernel")]
    variables.from_bytes(target, data)
    assert target[0].numpy().tolist() == [1.0]


def test_damaged_buffers_are_refused():
    data = variables.to_bytes(make(w=[3.0, 4.0]))
    for spoiled in (b"", b"rubbish of some length", data[:-1], data + b"x", data[:20]):
        with pytest.raises(variables.VariablesError, match="buffer made by to_bytes"):
            variables.from_bytes(make(w=[0.0, 0.0]), spoiled)


def test_only_numbers_travel():
    with pytest.raises(variables.VariablesError, match="variable s:0: expected numbers"):
        variables.to_bytes([tf.Variable("text", name="s")])
