"""A model for LLVM's own modes decides as the policy does, fed as LLVM feeds it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy
from tfrl_systems.systems.inlining.policy.mlgo import save_mlgo

LLVMS = [name for name in NAMES if name != "inlining_default"] + ["node_count"]


@pytest.fixture(scope="module")
def policy():
    return to_numpy(decision_rows.trained()).with_margins(0.125)


@pytest.fixture(scope="module")
def model(policy, tmp_path_factory):
    directory = tmp_path_factory.mktemp("mlgo") / "model"
    save_mlgo(directory, policy, LLVMS)
    return directory


def test_decides_as_numpy_does(policy, model):
    loaded = tf.saved_model.load(model)  # holds the variables
    action = loaded.signatures["action"]
    _, fed = action.structured_input_signature
    assert set(fed) == {*NAMES, "node_count", "discount", "reward", "step_type"}
    assert {spec.shape.as_list() == [1] for spec in fed.values()} == {True}
    rows = np.concatenate([decision_rows.draw(200, 32), decision_rows.wild(30, 33)])
    expected = policy.begin("module", NAMES)(rows, 0)
    assert 0 < expected.sum() < len(expected)
    # LLVM compiles the graph ahead of time, by XLA.
    run = tf.function(lambda **inputs: action(**inputs), jit_compile=True)
    decisions = [int(run(**feeds(row))["inlining_decision"][0]) for row in rows]
    assert decisions == expected.tolist()


def feeds(row: np.ndarray) -> dict[str, tf.Tensor]:
    inputs = {name: tf.constant([value], tf.int64) for name, value in zip(NAMES, row, strict=True)}
    inputs |= {"node_count": tf.constant([7], tf.int64), "step_type": tf.constant([1])}
    return {**inputs, "discount": tf.constant([1.0]), "reward": tf.constant([0.0])}


def test_says_where_the_decision_is_in_the_graph(model):
    (described,) = json.loads((model / "output_spec.json").read_text())
    assert described["logging_name"] == "inlining_decision"
    spec = described["tensor_spec"]
    assert (spec["type"], spec["shape"]) == ("int64_t", [1])
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(model))
        fed = {graph.get_tensor_by_name(f"action_{name}:0"): [3] for name in (*NAMES, "node_count")}
        decision = session.run(f"{spec['name']}:{spec['port']}", fed)
    assert decision.shape == (1,) and decision.dtype == np.int64


def test_what_is_there_stays(policy, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="expected a new directory"):
        save_mlgo(tmp_path, policy, LLVMS)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
