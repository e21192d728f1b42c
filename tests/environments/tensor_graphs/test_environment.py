"""Episodes on tensor graphs: by hand, by the contract, and at random."""

from __future__ import annotations

import numpy as np
import pytest

import environments
from environments import contexts
from environments.errors import UserError
from environments.tensor_graphs import rewards
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.language.notation import op, rule
from environments.tensor_graphs.rules.library import all_rules
from environments.tensor_graphs.settings import Settings
from environments.testing import EnvironmentContractTest
from tests.environments.tensor_graphs.random_graphs import random_graph
from tests.environments.tensor_graphs.search.fakes import branches

SMALL = {"max_nodes": 40, "max_edges": 60, "max_locations": 12, "max_actions": 60}
OF_GRAPHS = {"max_nodes": 60, "max_edges": 90, "max_locations": 4, "max_actions": 80}


@rule
def back(x):
    return op.Relu(op.Relu(x)), op.Relu(x)


@rule
def there(x):
    return op.Relu(x), op.Relu(op.Relu(x))


class Ones:
    """Each Relu costs 2 ms, whatever else 1 ms."""

    def node_cost_ms(self, graph, number):
        return {"Relu": 2.0, INPUT: 0.0}.get(graph.nodes[number].op, 1.0)


def relus(count):
    """Relu of Relu of Relu … of a vector of 4."""
    vector = TensorType("float32", (4,))
    return Model(f"relus-{count}", branches(("Relu",) * count, types=[vector]))


def make(*graphs, rules=(back, there), objective=None, seed=0, measure_fn=None, **settings):
    models = [start if isinstance(start, Model) else Model("random", start) for start in graphs]
    chosen = Settings(**SMALL | settings)
    return TensorGraphEnvironment(
        contexts.uniform(models), chosen, rules, objective or Ones(), seed, measure_fn
    )


def no_op(environment):
    return np.array([len(environment.rules), 0], np.int32)


class TestContract(EnvironmentContractTest):
    settings = {}

    def make_environment(self, seed):
        return make(relus(1), relus(2), relus(3), max_steps=7, seed=seed, **self.settings)


class TestContractWithoutStopping(TestContract):
    settings = {"may_stop": False}


class TestContractAfterRandomSteps(TestContract):
    settings = {"random_steps": 4}


class TestContractOfFamilies(EnvironmentContractTest):
    def make_environment(self, seed):
        graphs = [random_graph(number) for number in range(4)]
        settings = {"reward": "R1", "max_steps": 15, "truncate": True, **OF_GRAPHS}
        objective = AnalyticObjective()
        return make(*graphs, rules=all_rules(), objective=objective, seed=seed, **settings)


@pytest.mark.parametrize("limit", [{"patience": 3}, {"max_steps": 4}])
def test_an_episode_ends_after_steps_without_a_gain_or_after_the_last_step(limit):
    """Up is 2 ms dearer, down 2 ms cheaper; only what is cheaper than all before counts."""
    environment = make(relus(2), **limit)
    up, down = np.array([1, 0], np.int32), np.array([0, 0], np.int32)
    environment.reset()
    # 4 ms, 2 (a gain), then 4, 2 and 4 ms without one.
    steps = [environment.step(action) for action in (down, up, down, up)]
    assert [bool(step.is_last()) for step in steps] == [False, False, False, True]
    info = environment.get_info()
    assert (info["best_cost_ms"], info["cost_ms"]) == (2, 4) and environment.reset().is_first()
    assert not environment.step(up).is_last()


def test_one_episode_by_hand():
    """Relu(Relu(Relu(x))), 6 ms: two of the three can be one, at two places."""
    environment = make(relus(3), rules=(back,))
    first = environment.reset()
    seen = first.observation
    assert first.is_first() and seen["n_node"].tolist() == [4, 37]
    kinds = [features.KINDS[int(kind)] for kind in seen["nodes"][:5, 0]]
    assert kinds == ["Input", "Relu", "Relu", "Relu", "padding"]
    assert seen["senders"][:4].tolist() == [0, 1, 2, 40]
    assert seen["receivers"][:4].tolist() == [1, 2, 3, 40]
    is_output = features.NODE_FEATURES.index("is_output")
    assert seen["nodes"][:5, is_output].tolist() == [0, 0, 0, 1, 0]
    assert seen["xfer_mask"].tolist() == [True, True]
    assert seen["location_masks"][:, :3].tolist() == [[True, True, False], [True, False, False]]
    assert seen["actions"][:4].tolist() == [[1, 0], [0, 0], [0, 1], [1, 0]]
    assert seen["action_mask"][:4].tolist() == [True, True, True, False]
    # The Relu that is replaced comes first, then the other one; the variable is what is below.
    assert seen["action_nodes"][:4].tolist() == [[40, 40], [2, 1], [3, 2], [40, 40]]
    assert seen["action_inputs"][:4].tolist() == [[40], [0], [1], [40]]
    assert seen["globals"][0, :2].tolist() == [1, 1]

    middle = environment.step(np.array([0, 1], np.int32))
    assert middle.is_mid() and middle.discount == 1
    assert middle.reward == pytest.approx(100 * 2 / 6)
    assert middle.observation["n_node"].tolist() == [3, 38] and environment.state.cost_ms == 4
    assert middle.observation["globals"][0, 0] == pytest.approx(4 / 6)
    last = environment.step(np.array([0, 0], np.int32))
    assert last.is_last() and last.discount == 0
    assert last.reward == pytest.approx(100 * 2 / 6)
    assert last.observation["xfer_mask"].tolist() == [False, True]
    assert [match.rule for match in environment.episode.trail] == ["back", "back"]
    assert environment.state.cost_ms == 2
    assert environment.get_info() == {
        "context": "relus-3",
        "steps": 2,
        "invalid_steps": 0,
        "cost_ms": 2,
        "best_cost_ms": 2,
        "start_cost_ms": 6,
        "flops": 4,
        "start_flops": 12,
        "bytes_moved": 32,
        "start_bytes_moved": 96,
        "num_kernels": 1,
        "start_num_kernels": 3,
    }


def test_no_op_ends_and_what_is_not_allowed_changes_nothing():
    environment = make(relus(2))
    environment.reset()
    start = environment.state
    for action in ([0, 1], [2, 1], [1, 11]):
        step = environment.step(np.array(action, np.int32))
        assert step.reward == -100 and step.is_mid() and environment.state is start
    last = environment.step(no_op(environment))
    assert last.reward == 0 and last.is_last()
    assert environment.get_info()["invalid_steps"] == 3
    assert environment.step(no_op(environment)).is_first()


def test_who_may_not_stop_goes_on_while_a_rule_matches():
    environment = make(relus(2), rules=(back,), may_stop=False)
    seen = environment.reset().observation
    assert seen["xfer_mask"].tolist() == [True, False] and not seen["location_masks"][1].any()
    assert seen["actions"][seen["action_mask"]].tolist() == [[0, 0]]
    assert environment.step(no_op(environment)).reward == rewards.INVALID
    last = environment.step(np.array([0, 0], np.int32))
    assert last.is_last() and last.observation["xfer_mask"].tolist() == [False, True]


def test_an_episode_begins_some_random_steps_away():
    """Of three Relus the upper match leaves two; the lower one leaves one, as equal nodes merge."""
    environment = make(relus(3), rules=(back,), random_steps=5)
    begun = set()
    for _ in range(30):
        first = environment.reset()
        num_relus = int(first.observation["n_node"][0]) - 1
        assert environment.episode.trail == [] and first.observation["globals"][0, 0] == 1
        while not environment.step(np.array([0, 0], np.int32)).is_last():
            pass
        info = environment.get_info()
        assert info["start_cost_ms"] == 2 * num_relus
        begun.add((info["context"], num_relus))
    # Where one Relu is left, no rule matches, and no further step is taken.
    assert begun == {("relus-3", 3), ("relus-3+1", 2), ("relus-3+1", 1), ("relus-3+2", 1)}


def test_without_masks_all_is_shown_and_costs_100():
    environment = make(relus(2), masked=False)
    seen = environment.reset().observation
    assert seen["xfer_mask"].all() and seen["location_masks"].all()
    assert seen.keys() == environment.observation_spec().keys()
    listing = {"actions", "action_mask", "action_nodes", "action_inputs", "action_features"}
    assert make(relus(2)).observation_spec().keys() - seen.keys() == listing
    assert environment.step(np.array([0, 9], np.int32)).reward == rewards.INVALID == -100


def test_masks_are_exact():
    """Every action that they allow changes the graph as its match says; no other changes it."""
    rules = all_rules()
    for seed in range(3):
        environment = make(
            random_graph(seed), rules=rules, objective=AnalyticObjective(), max_steps=10**6
        )
        masks = environment.reset().observation["location_masks"]
        start = environment.state
        assert masks.any(axis=1).tolist() == [*start.xfer_mask.tolist(), True]
        assert int(masks.sum()) == len(start.matches) + 1
        for action in np.argwhere(masks[:-1]):
            step = environment.step(action.astype(np.int32))
            match = start.matches_by_rule[action[0]][action[1]]
            assert environment.state.graph == start.apply(match).graph != start.graph
            assert step.reward != -100
            environment.reset()
        for action in np.argwhere(~masks)[::7]:
            assert environment.step(action.astype(np.int32)).reward == -100
            assert environment.state is start


def test_an_episode_begins_at_a_state_as_at_a_model_of_its_graph(monkeypatch):
    """The matches are not searched again, if the state is of this environment's own engine."""
    settings = {"rules": all_rules(), "objective": AnalyticObjective(), "truncate": True}
    environment = make(random_graph(0), **settings, **OF_GRAPHS)
    environment.reset()
    for _ in range(3):
        environment.step(np.array([np.flatnonzero(environment.state.xfer_mask)[0], 0], np.int32))
    state = environment.state
    assert environment.episode.trail and len(state.matches) > 1
    second, third = (make(state.graph, **settings, **OF_GRAPHS) for _ in range(2))
    expected = second.reset()
    started, start = [], Engine.start
    monkeypatch.setattr(
        Engine, "start", lambda engine, graph: started.append(engine) or start(engine, graph)
    )
    action = np.array([np.flatnonzero(state.xfer_mask)[-1], 0], np.int32)
    following = second.step(action)
    for player, num_started in ((environment, 0), (third, 1), (third, 1)):
        step = player.reset_to(state, "again")
        assert step.is_first() and player.episode.trail == [] and len(started) == num_started
        assert (player.state is state) == (player is environment)
        assert player.current_time_step() is step
        assert_same(step, expected)
        assert_same(player.step(action), following)
        assert player.step(no_op(player)).is_last() and player.get_info()["context"] == "again"


def assert_same(actual, expected):
    assert actual.reward == expected.reward
    for name, array in expected.observation.items():
        np.testing.assert_array_equal(actual.observation[name], array, name)


@pytest.mark.parametrize(
    ("sizes", "setting"),
    [({"max_nodes": 3}, "max_nodes"), ({"max_edges": 2}, "max_edges"),
     ({"max_locations": 1}, "max_locations"), ({"max_actions": 2}, "max_actions")],
)  # fmt: skip
def test_what_there_is_no_room_for(sizes, setting):
    with pytest.raises(UserError, match=f"{setting}: expected at most .*raise {setting}"):
        make(relus(3), rules=(back,), **sizes).reset()
    environment = make(relus(3), rules=(back,), truncate=True, **sizes)
    with pytest.warns(UserWarning, match=f"{setting}.*left out"):
        seen = environment.reset().observation
    most = sizes.get("max_nodes", SMALL["max_nodes"])
    assert seen["n_node"][0] == min(4, most)
    assert seen["location_masks"].sum() == seen["action_mask"].sum()
    rows = np.concatenate([seen[name].ravel() for name in ("senders", "receivers", "action_nodes")])
    assert set(rows) <= {*range(seen["n_node"][0]), most}
    assert environment.step(np.array([0, 0], np.int32)).reward > 0


def test_a_graph_that_grows_too_large_ends_the_episode():
    environment = make(relus(1), max_nodes=2)
    environment.reset()
    with pytest.raises(UserError, match="relus-1 has become after 1 steps, found 3"):
        environment.step(np.array([1, 0], np.int32))
    assert environment.step(no_op(environment)).is_first()


def test_it_is_made_by_its_name():
    sampler = contexts.uniform([relus(2)])
    environment = environments.make(
        "tensor_graphs", sampler=sampler, rules=(back,), objective=Ones()
    )
    assert environment.reset().is_first()
    for setting in ("max_steps", "max_edges"):
        with pytest.raises(UserError, match=f"{setting}: expected 1 or more"):
            make(relus(1), **{setting: 0})
