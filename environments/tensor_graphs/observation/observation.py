"""What a policy sees of a graph of tensor operations, and of what it may do.

Besides the fields of `graph_observation`, with the features of `features` (edges lead from the node
that makes a tensor to the one that uses it), an observation has, for R rules and S locations:

  xfer_mask        bool [R + 1]            rules that match somewhere, and NO-OP, the last one
  location_masks   bool [R + 1, S]         locations of each rule; of NO-OP the first alone
  actions          int32 [max_actions, 2]  what is allowed: (xfer, location); the first is NO-OP
  action_mask      bool [max_actions]      which of them there are; the others are padding: NO-OP.
                                           The first may be forbidden, too: `may_stop`
  action_nodes     int32 [max_actions, K]  rows of the nodes that the match takes apart, first those
                                           that are replaced, in the order of the rule
  action_inputs    int32 [max_actions, V]  rows of what the rule's variables stand for, in order
  action_features  float32 [max_actions, F]  MATCH_FEATURES, 0 of NO-OP
  rule_ids         int32 [R + 1]           a number made of each rule's name; of NO-OP 0
  rule_targets     int32 [R + 1, 8]        kinds (`features.KINDS`) of the operators of its target,
                                           the outermost first, at most 8; then 0, as for NO-OP

In `action_nodes` and `action_inputs`, row `max_nodes`, which is padding, stands for what there is
none of. Location L of a rule is its match number L in the engine's order. `xfer_mask` and
`location_masks` say the same as `actions`: what they allow, and nothing else, is among them. The
last two are the same in all observations: whoever heeds them, and not the rules' numbers, knows a
rule again among other ones, and something of one that is new.

No graph is built to observe one: the tracker's rows, the engine's matches and costs are there.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.graph_observation import Arrays, GraphSpace
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.tracking import COST
from environments.tensor_graphs.observation.view import View
from environments.tensor_graphs.rules.language.expressions import Apply, Expression
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.settings import SIZES, Settings

GLOBAL_FEATURES = ("cost", "memory", "log_cost", "steps", "nodes", "matches")
"""Of the graph: its cost and bytes moved over those of the model's first graph; lg(cost in us);
part of `max_steps` that has been taken; lg(nodes), lg(matches); lg as in `features`."""

_WORDS = (
    *(features.KINDS, features.NODE_FEATURES, features.EDGE_FEATURES, GLOBAL_FEATURES),
    features.MATCH_FEATURES,
)
VOCABULARY = hashlib.sha256(json.dumps(_WORDS).encode()).hexdigest()[:16]
"""Tells observations apart whose numbers mean something else, such as the kinds of nodes."""

_MOST_ID = 2**31 - 1
_NUM_TARGETS = 8


class Observer:
    """Makes observations of states.

    Attributes:
      settings: the sizes of the observations.
      space: of the graph fields.
      num_rules: R.
    """

    def __init__(self, rules: Sequence[Rule], settings: Settings) -> None:
        """Nothing is observed yet.

        Args:
          rules: the engine's.
          settings: the sizes of the observations, and whether to leave out what has no room.

        Raises:
          UserError: a size is 0.
        """
        for name in SIZES:
            if getattr(settings, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found 0; correct it")
        self.settings, self.num_rules = settings, len(rules)
        self.space = GraphSpace(
            settings.max_nodes,
            settings.max_edges,
            features.KINDS,
            features.NODE_FEATURES,
            features.EDGE_FEATURES,
            GLOBAL_FEATURES,
        )
        self._num_touched = max((sum(map(_num_nodes, one.source)) for one in rules), default=1)
        self._num_inputs = max((len(one.variables) for one in rules), default=1)
        self._locations = np.arange(settings.max_locations, dtype=np.int32)
        self._rule_ids, self._rule_targets = _describe(rules)
        self._warned: set[str] = set()

    def specs(self) -> dict[str, Any]:
        """TF-Agents' ArraySpec of each array."""
        # Only here: see GraphSpace.specs.
        from tf_agents.specs import array_spec

        sizes, most = self.settings, (self.num_rules, self.settings.max_locations - 1)
        rows, mask = self.settings.max_actions, (self.num_rules + 1,)

        def bounded(shape: tuple[int, ...], maximum: Any, name: str) -> Any:
            return array_spec.BoundedArraySpec(shape, np.int32, 0, maximum, name)

        return {
            **self.space.specs(),
            "xfer_mask": array_spec.ArraySpec(mask, np.bool_, "xfer_mask"),
            "location_masks": array_spec.ArraySpec(
                (*mask, sizes.max_locations), np.bool_, "location_masks"
            ),
            "actions": bounded((rows, 2), np.broadcast_to(most, (rows, 2)), "actions"),
            "action_mask": array_spec.ArraySpec((rows,), np.bool_, "action_mask"),
            "action_nodes": bounded((rows, self._num_touched), sizes.max_nodes, "action_nodes"),
            "action_inputs": bounded((rows, self._num_inputs), sizes.max_nodes, "action_inputs"),
            "action_features": array_spec.ArraySpec(
                (rows, len(features.MATCH_FEATURES)), np.float32, "action_features"
            ),
            "rule_ids": bounded(mask, _MOST_ID, "rule_ids"),
            "rule_targets": bounded(
                self._rule_targets.shape, len(features.KINDS) - 1, "rule_targets"
            ),
        }

    def observe(self, view: View, steps: float) -> Arrays:
        """The observation of a view.

        Args:
          view: at any state.
          steps: part of an episode's steps that have been taken.

        Raises:
          UserError: it has no room for the graph or its matches.
        """
        nodes, tracker = view.tracker.nodes, view.tracker
        order = self._fitting("max_nodes", nodes.order(), view)
        padding = self.settings.max_nodes
        # By number of the node; the last entry, which is also that of number -1, is of no node.
        rows = np.full(tracker.end + 1, padding, np.int32)
        rows[nodes.keys()[: len(order)]] = np.arange(len(order), dtype=np.int32)
        edges = tracker.edges.order()
        ends = rows[tracker.edges.ends[edges]]
        if len(order) < len(nodes):
            is_whole = (ends < padding).all(axis=1)
            edges, ends = edges[is_whole], ends[is_whole]
        edges = self._fitting("max_edges", edges, view)
        ends = ends[: len(edges)]
        values = nodes.values[order]
        columns = slice(features.FIRST_COST, features.FIRST_COST + len(features.COST_FEATURES))
        costs_ms = nodes.work[order, COST]
        values[:, columns] = features.cost_columns(costs_ms, view.start_cost_ms)
        found = self.space.pad(
            values,
            tracker.edges.values[edges],
            ends[:, 0],
            ends[:, 1],
            self._globals(view, steps),
        )
        known = {"rule_ids": self._rule_ids, "rule_targets": self._rule_targets}
        return {**found, **self._allowed(view, rows), **known}

    def _globals(self, view: View, steps: float) -> tuple[float, ...]:
        return (
            view.cost,
            view.memory,
            features.lg(1000 * view.state.cost_ms),
            steps,
            features.lg(len(view.tracker.nodes)),
            features.lg(float(view.state.num_matches.sum())),
        )

    def _allowed(self, view: View, rows: np.ndarray) -> Arrays:
        """Masks and actions; `rows` by number of the node."""
        counts = view.state.num_matches
        if len(counts) and counts.max() > self.settings.max_locations:
            self._check("max_locations", int(counts.max()), view)
        counts = np.minimum(counts, self.settings.max_locations)
        total = int(counts.sum()) + 1
        if total > self.settings.max_actions:
            self._check("max_actions", total, view)
            before = np.cumsum(counts) - counts
            counts = np.clip(self.settings.max_actions - 1 - before, 0, counts)
            total = int(counts.sum()) + 1
        made = {
            "xfer_mask": np.append(counts > 0, True),
            "location_masks": self._locations < np.append(counts, np.int32(1))[:, np.newaxis],
            "actions": np.zeros((self.settings.max_actions, 2), np.int32),
            "action_mask": np.arange(self.settings.max_actions) < total,
            "action_nodes": np.full(
                (self.settings.max_actions, self._num_touched), self.settings.max_nodes, np.int32
            ),
            "action_inputs": np.full(
                (self.settings.max_actions, self._num_inputs), self.settings.max_nodes, np.int32
            ),
            "action_features": np.zeros(
                (self.settings.max_actions, len(features.MATCH_FEATURES)), np.float32
            ),
        }
        made["actions"][:, 0] = self.num_rules
        present = np.flatnonzero(counts)
        if len(present):
            given = counts[present]
            tables = view.match_tables(present, self._num_touched, self._num_inputs)
            kept = list(zip(tables, given.tolist(), strict=True))
            touched = rows[np.concatenate([one.rows[:count] for one, count in kept])]
            works = np.concatenate([one.works[:count] for one, count in kept])
            made["action_features"][1:total] = features.match_columns(works, view.start_cost_ms)
            made["action_nodes"][1:total] = touched[:, : self._num_touched]
            made["action_inputs"][1:total] = touched[:, self._num_touched :]
            made["actions"][1:total, 0] = np.repeat(present, given)
            firsts = np.cumsum(given) - given
            made["actions"][1:total, 1] = np.arange(total - 1) - np.repeat(firsts, given)
        return made

    def _fitting(self, setting: str, places: np.ndarray, view: View) -> np.ndarray:
        most = getattr(self.settings, setting)
        if len(places) > most:
            self._check(setting, len(places), view)
        return places[:most]

    def _check(self, setting: str, found: int, view: View) -> None:
        """Refuses what there is no room for, or warns, once for each setting."""
        problem = (
            f"{setting}: expected at most {getattr(self.settings, setting)} in the graph that "
            f"{view.name} has become after {view.num_steps} steps, found {found}"
        )
        if not self.settings.truncate:
            raise UserError(f"{problem}; raise {setting}, or set truncate to leave out the rest")
        if setting not in self._warned:
            self._warned.add(setting)
            warnings.warn(f"{problem}; the rest is left out", stacklevel=2)


def _describe(rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """`rule_ids` and `rule_targets`, not to be written into."""
    ids = np.zeros(len(rules) + 1, np.int32)
    targets = np.zeros((len(rules) + 1, _NUM_TARGETS), np.int32)
    for number, rule in enumerate(rules):
        ids[number] = zlib.crc32(rule.name.encode()) & _MOST_ID
        kinds = [features.KINDS.index(op) for op in _operators(rule.target)][:_NUM_TARGETS]
        targets[number, : len(kinds)] = kinds
    for array in (ids, targets):
        array.setflags(write=False)
    return ids, targets


def _operators(expressions: Sequence[Expression | None]) -> list[str]:
    """Of all applications, each counted once: those on the outside first, from left to right."""
    found: dict[tuple[object, ...], str] = {}
    level: Sequence[Expression | None] = expressions
    while level:
        applied = [one for one in level if isinstance(one, Apply)]
        for one in applied:
            # Several outputs of one operator are one operator.
            found.setdefault((one.op, one.inputs, one.attributes), one.op)
        level = [given for one in applied for given in one.inputs]
    return list(found.values())


def _num_nodes(expression: Expression | None) -> int:
    if not isinstance(expression, Apply):
        return 0
    return 1 + sum(map(_num_nodes, expression.inputs))
