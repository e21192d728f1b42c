"""What is kept up to date is what one sees who looks for the first time."""

from __future__ import annotations

import dataclasses
import random

import numpy as np

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.features import NODE_FEATURES, lg
from environments.tensor_graphs.observation.observation import Observer
from environments.tensor_graphs.observation.tracking import (
    BYTES,
    COST,
    FLOPS,
    KERNELS,
    Tracker,
    View,
)
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.language.notation import Constant, op, rule
from environments.tensor_graphs.rules.library import all_rules
from environments.tensor_graphs.settings import Settings
from tests.environments.tensor_graphs.costs.graphs import graph_of, work_of
from tests.environments.tensor_graphs.random_graphs import random_graph
from tests.environments.tensor_graphs.small_models import adapter, convolutions

RULES = all_rules()
SETTINGS = Settings(max_nodes=120, max_edges=200, max_locations=60, max_actions=300)


def fresh(state, constants=True):
    objective = AnalyticObjective()
    costs_ms = {number: objective.node_cost_ms(state.graph, number) for number in state.graph.nodes}
    return View("fresh", state, Tracker(state.graph, costs_ms, constants))


def small_view():
    return fresh(Engine((), AnalyticObjective()).start(random_graph(0)))


def test_kept_up_to_date_is_as_seen_for_the_first_time():
    engine, observer = Engine(RULES, AnalyticObjective()), Observer(RULES, SETTINGS)
    for seed in range(25):
        rng = random.Random(seed)
        constants = seed % 5 > 0
        state = engine.start(random_graph(seed))
        view = fresh(state, constants)
        for _ in range(8):
            if not state.matches:
                break
            state = state.apply(rng.choice(state.matches))
            view = view.copy() if rng.random() < 0.3 else view
            view.advance(state)
            expected = fresh(engine.start(state.graph), constants)
            # These two say what it was like at the beginning.
            expected.start_cost_ms, expected.start_work = view.start_cost_ms, view.start_work
            seen, first_seen = observer.observe(view, 0.5), observer.observe(expected, 0.5)
            for name, array in first_seen.items():
                np.testing.assert_array_equal(seen[name], array, err_msg=f"{name} {seed}")
            np.testing.assert_array_equal(view.work, expected.work)


def test_sums_are_those_of_the_whole_graph():
    for seed in range(10):
        state = Engine(RULES, AnalyticObjective()).start(random_graph(seed))
        work = fresh(state).work
        assert [work[FLOPS], work[BYTES], work[KERNELS]] == work_of(state.graph)
        assert np.isclose(work[COST], state.cost_ms)


def test_costs_by_the_roofline_are_seen_whatever_the_objective_says():
    """So a policy that learned where costs were measured sees the same where none is known."""

    class Dear(AnalyticObjective):
        def node_cost_ms(self, graph, number):
            return 100 * super().node_cost_ms(graph, number)

    def seen_by(objective, shown_costs):
        state = Engine(RULES, objective).start(random_graph(1))
        view = View("m", state, Tracker(state.graph, state.node_costs_ms))
        settings = dataclasses.replace(SETTINGS, shown_costs=shown_costs)
        return Observer(RULES, settings).observe(view, 0.0)

    plain, dear = (seen_by(costs, "roofline") for costs in (AnalyticObjective(), Dear()))
    for name, array in plain.items():
        np.testing.assert_array_equal(array, dear[name], err_msg=name)
    # That of views is the time to start an operator by both.
    by_objective = seen_by(AnalyticObjective(), "objective")
    np.testing.assert_allclose(plain["nodes"], by_objective["nodes"], rtol=1e-5)
    assert (seen_by(Dear(), "objective")["nodes"] != dear["nodes"]).any()


def test_open_sizes_are_those_of_the_costs():
    """Relu of [N, 64] at N = 7 reads and writes 2 * 7 * 64 floats, and looks as it would fixed."""

    def seen_with(size, sizes):
        graph = graph_of("a = Relu(x) y = Relu(a)", (size, 64))
        state = Engine(RULES, AnalyticObjective(sizes=sizes)).start(graph)
        view = View("m", state, Tracker(state.graph, state.node_costs_ms, sizes=sizes))
        return Observer(RULES, SETTINGS).observe(view, 0.0), view.work

    seen, work = seen_with("N", Sizes(symbols=(("N", 7),)))
    fixed, _ = seen_with(7, NONE_OPEN)
    assert work[BYTES] == 2 * (2 * 7 * 64 * 4)
    for name, array in fixed.items():
        np.testing.assert_array_equal(array, seen[name], err_msg=name)


def test_a_constant_expression_is_one_node():
    """conv-bn folding makes expressions of weights; the weights inside are no nodes any more."""
    state = Engine(RULES, AnalyticObjective()).start(onnx_io.read(convolutions()))
    num_seen = len(fresh(state).tracker.nodes)
    assert num_seen == len(state.graph.nodes)
    folded = next(match for match in state.matches if "batch" in match.rule or "bn" in match.rule)
    after = state.apply(folded)
    view = fresh(after)
    assert len(after.graph.nodes) > num_seen > len(view.tracker.nodes)
    alone = fresh(after, constants=False)
    kinds = Observer(RULES, SETTINGS).observe(alone, 0.0)["nodes"][:, 0]
    assert features.KINDS.index("Constant") not in kinds
    assert alone.work.tolist() == view.work.tolist()


def test_features_by_hand():
    """A convolution of 3 × 3 with stride 2 over [1, 2, 8, 8], 4 filters: [1, 4, 4, 4]."""
    nodes = "y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)"
    graph = graph_of(nodes, (1, 2, 8, 8), w=np.ones((4, 2, 3, 3), np.float32))
    state = Engine([], AnalyticObjective()).start(graph)
    seen = Observer([], Settings(max_nodes=5)).observe(fresh(state), 0.25)
    row = dict(zip(NODE_FEATURES, seen["nodes"][2].tolist(), strict=True))
    flops, size_bytes = 2 * 64 * 18, 4 * (128 + 72 + 64)
    expected = {
        "kind": features.KINDS.index("Conv"), "is_constant": 0, "is_output": 1, "num_users": 0,
        "constant_input_0": 0, "constant_input_1": 1, "constant_input_2": 0, "rank": 0.8,
        "size_0": lg(1), "size_1": lg(4), "size_2": lg(4), "size_3": lg(4), "size_4": 0,
        "elements": lg(64), "is_static": 1, "is_float": 1, "itemsize": lg(4), "num_outputs": lg(1),
        "flops": lg(flops), "bytes": lg(size_bytes), "kernel_0": lg(3), "kernel_1": lg(3),
        "stride_0": lg(2), "stride_1": lg(2), "pads": lg(4), "dilation": lg(1), "group": lg(1),
        "axis": 0, "perm_0": 0, "perm_1": 0, "perm_2": 0, "perm_3": 0, "perm_4": 0, "trans_a": 0,
        "trans_b": 0, "cost_share": np.log1p(1000) / 7, "log_cost": lg(1000 * state.cost_ms),
    }  # fmt: skip
    assert row == {name: np.float32(value) for name, value in expected.items()}
    assert seen["edges"][:2].tolist() == [
        [1, 0, 0, 0, 0, np.float32(lg(128)), 0],
        [0, 1, 0, 0, 0, np.float32(lg(72)), 1],
    ]
    assert seen["senders"][:3].tolist() == [0, 1, 5] and seen["receivers"][:3].tolist() == [2, 2, 5]
    expected_globals = [1, 1, lg(1000 * state.cost_ms), 0.25, lg(3), 0]
    np.testing.assert_allclose(seen["globals"][0], expected_globals, rtol=1e-6)


def test_a_rule_is_known_by_its_name_and_by_what_it_builds():
    """Whatever its number is, and whatever other rules there are."""
    few, many = (
        Observer(rules, SETTINGS).observe(small_view(), 0.0) for rules in (RULES[:5], RULES)
    )
    np.testing.assert_array_equal(few["rule_ids"][:5], many["rule_ids"][:5])
    np.testing.assert_array_equal(few["rule_targets"][:5], many["rule_targets"][:5])
    assert len(set(many["rule_ids"].tolist())) == len(RULES) + 1
    for seen in (few, many):
        assert seen["rule_ids"][-1] == 0 and not seen["rule_targets"][-1].any()


def test_operators_of_a_target_are_listed_from_the_outside():
    """However often an operator is mentioned, it is one."""

    @rule
    def joined(x, v: Constant, w: Constant):
        parts = op.Split(x @ op.Concat(v, w, axis=1), axis=-1, num_outputs=2)
        return (x @ v, x @ w), (parts, parts)

    targets = Observer((joined,), SETTINGS).observe(small_view(), 0.0)["rule_targets"][0]
    kinds = [features.KINDS[kind] for kind in targets]
    assert kinds == ["Split", "MatMul", "Concat", *["padding"] * 5]


@rule
def matrices_first(x, v: Constant, w: Constant):
    return (x @ v) @ w, x @ (v @ w), v.rank == 2, w.rank == 2


@rule
def not_not(x):
    return op.Relu(x), op.Relu(op.Neg(op.Neg(x)))


def test_what_matches_change_worked_by_hand():
    """x [64, 192], a [192, 96], b [96, 192]: 2 products of 2 * 64 * 192 * 96 become one of
    2 * 64 * 192 * 192, as many operations; a · b is constant. What is not moved any more is x · a,
    written and read, and a and b; what is, is their product."""
    graph = onnx_io.read(adapter())
    state = Engine((matrices_first, not_not), AnalyticObjective()).start(graph)
    first, *_ = state.matches_by_rule[0]
    saved = 2 * 64 * 96 + 2 * 192 * 96 - 192 * 192
    work = features.match_work(graph, first)
    assert work[:3].tolist() == [0, -4 * saved, -1]
    more, *_ = state.matches_by_rule[1]
    elements = 64 * 192
    assert features.match_work(graph, more)[:3].tolist() == [2 * elements, 16 * elements, 2]
    columns = features.match_columns(np.array([[-99, 0, 3, 0.2]]), 2.0)
    expected = [-np.log(100) / 10, 0, 0.3, np.log(101) / 7]
    np.testing.assert_allclose(columns, [expected], rtol=1e-6)
