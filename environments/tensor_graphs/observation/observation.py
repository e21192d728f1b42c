"""Make observations: arrays that describe a graph and the actions that are allowed.

An observation has the fields of `graph_observation`, with the features of `features`. An edge leads
from the node that makes a tensor to a node that uses it. For R rules and S locations there are also
these fields:

  xfer_mask        bool [R + 1]            which rules have a match; the last entry is for NO-OP
  location_masks   bool [R + 1, S]         which locations each rule has; NO-OP has only the first
  actions          int32 [max_actions, 2]  the allowed actions, (xfer, location); row 0 is NO-OP
  action_mask      bool [max_actions]      which rows of `actions` are allowed. The rows after these
                                           are padding: NO-OP. `may_stop` can forbid row 0
  action_nodes     int32 [max_actions, K]  rows of the nodes in the match's source: first the nodes
                                           that it replaces, in the order of the rule
  action_inputs    int32 [max_actions, V]  rows of the nodes that the rule's variables stand for
  action_features  float32 [max_actions, F]  MATCH_FEATURES; 0 for NO-OP
  rule_ids         int32 [R + 1]           a hash of each rule's name; 0 for NO-OP
  rule_targets     int32 [R + 1, 8]        kinds (`features.KINDS`) of the operators in the rule's
                                           target, outermost first, at most 8; 0 for the rest and
                                           for NO-OP

Row `max_nodes`, which is padding, fills the unused entries of `action_nodes` and `action_inputs`.
Location L of a rule is its match number L, in the engine's order. `xfer_mask` and `location_masks`
allow exactly the actions that `actions` lists. `rule_ids` and `rule_targets` are the same in all
observations. A policy that uses them instead of the rules' numbers recognises a rule in another set
of rules, and knows something about a rule that is new to it.

An observation is assembled from arrays that are kept up to date from step to step: the tracker's
rows, and the engine's matches and costs.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.graph_observation import Arrays, GraphSpace
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.tracking import COST, ROOFLINE, View, part
from environments.tensor_graphs.operators.numbers import NUMBERS
from environments.tensor_graphs.rules.language.expressions import Apply, Expression
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.settings import SIZES, Settings

GLOBAL_FEATURES = ("cost", "memory", "log_cost", "steps", "nodes", "matches")
"""Features of the graph: its cost and its bytes moved, each divided by the first graph's; lg(cost
in us); the share of `max_steps` that was taken; lg(nodes); lg(matches). lg is as in `features`."""


def vocabulary(num_kinds: int) -> str:
    """Return a hash of what the numbers in observations mean, with the first kinds of nodes."""
    of_graphs = features.NODE_FEATURES, features.EDGE_FEATURES, GLOBAL_FEATURES
    words = features.KINDS[:num_kinds], *of_graphs, features.MATCH_FEATURES
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


VOCABULARY = vocabulary(len(features.KINDS))
"""Changes when a number in an observation, such as the kind of a node, gets another meaning."""


def is_understood(name: str) -> bool:
    """Return whether a policy that was saved with this vocabulary can be used.

    Kinds keep their numbers, so it can if it knows the first of them. Networks take the later ones
    for kind 0, which no node has.
    """
    return any(name == vocabulary(1 + number) for number in range(len(features.KINDS)))


_LIST = ("actions", "action_mask", "action_nodes", "action_inputs", "action_features")


def without_list(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of an observation, or of its specs, that do not list allowed actions."""
    return {name: field for name, field in fields.items() if name not in _LIST}


_MOST_ID = 2**31 - 1
_NUM_TARGETS = 8


class Observer:
    """Makes observations of states."""

    def __init__(self, rules: Sequence[Rule], settings: Settings) -> None:
        """Prepare to observe the states of an engine.

        Raises:
          UserError: a size is 0.
        """
        for name in SIZES:
            if getattr(settings, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found 0; correct it")
        self.settings, self.num_rules = settings, len(rules)
        self._column = ROOFLINE if settings.shown_costs == "roofline" else COST
        self.space = GraphSpace(
            settings.max_nodes,
            settings.max_edges,
            features.KINDS,
            features.NODE_FEATURES,
            features.EDGE_FEATURES,
            GLOBAL_FEATURES,
        )
        self._num_touched = max((sum(map(_num_nodes, rule.source)) for rule in rules), default=1)
        self._num_inputs = max((len(rule.variables) for rule in rules), default=1)
        self._locations = np.arange(settings.max_locations, dtype=np.int32)
        self._rule_ids, self._rule_targets = _describe(rules)
        self._warned: set[str] = set()

    def specs(self) -> dict[str, Any]:
        """Return TF-Agents' ArraySpec of each array, by name."""
        # Imported only here; see GraphSpace.specs.
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
        """Return the observation of a view.

        `steps` is the share of an episode's `max_steps` that has been taken, from 0 to 1.

        Raises:
          UserError: the graph or its matches do not fit, and `truncate` is not set.
        """
        nodes, tracker = view.tracker.nodes, view.tracker
        order = self._fitting("max_nodes", nodes.order(), view)
        padding = self.settings.max_nodes
        # Maps a node's number to its row. The last entry is padding, and index -1 refers to it.
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
        costs_ms, (_, start_ms) = nodes.work[order, self._column], view.totals_ms(self._column)
        values[:, columns] = features.cost_columns(costs_ms, start_ms)
        arrays = self.space.pad(
            values, tracker.edges.values[edges], ends[:, 0], ends[:, 1], self._globals(view, steps)
        )
        of_rules = {"rule_ids": self._rule_ids, "rule_targets": self._rule_targets}
        return {**arrays, **self._allowed(view, rows), **of_rules}

    def _globals(self, view: View, steps: float) -> tuple[float, ...]:
        cost_ms, start_ms = view.totals_ms(self._column)
        return (
            part(cost_ms, start_ms),
            view.memory,
            features.lg(1000 * cost_ms),
            steps,
            features.lg(len(view.tracker.nodes)),
            features.lg(float(view.state.num_matches.sum())),
        )

    def _allowed(self, view: View, rows: np.ndarray) -> Arrays:
        """Return the masks and the action fields.

        `rows` has the row of each node by its number; the last entry is the padding row.
        """
        most, padding = self.settings.max_actions, self.settings.max_nodes
        counts = view.state.num_matches
        if len(counts) and counts.max() > self.settings.max_locations:
            self._check("max_locations", int(counts.max()), view)
        counts = np.minimum(counts, self.settings.max_locations)
        total = int(counts.sum()) + 1
        if total > most:
            self._check("max_actions", total, view)
            before = np.cumsum(counts) - counts
            counts = np.clip(most - 1 - before, 0, counts)
            total = int(counts.sum()) + 1
        arrays = {
            "xfer_mask": np.append(counts > 0, True),
            "location_masks": self._locations < np.append(counts, np.int32(1))[:, np.newaxis],
            "actions": np.zeros((most, 2), np.int32),
            "action_mask": np.arange(most) < total,
            "action_nodes": np.full((most, self._num_touched), padding, np.int32),
            "action_inputs": np.full((most, self._num_inputs), padding, np.int32),
            "action_features": np.zeros((most, len(features.MATCH_FEATURES)), np.float32),
        }
        arrays["actions"][:, 0] = self.num_rules
        present = np.flatnonzero(counts)
        if len(present):
            shares = counts[present]
            tables = view.match_tables(present, self._num_touched, self._num_inputs)
            parts = list(zip(tables, shares.tolist(), strict=True))
            touched = rows[np.concatenate([table.rows[:count] for table, count in parts])]
            works = np.concatenate([table.works[:count] for table, count in parts])
            arrays["action_features"][1:total] = features.match_columns(
                works, view.totals_ms(self._column)[1]
            )
            arrays["action_nodes"][1:total] = touched[:, : self._num_touched]
            arrays["action_inputs"][1:total] = touched[:, self._num_touched :]
            arrays["actions"][1:total, 0] = np.repeat(present, shares)
            firsts = np.cumsum(shares) - shares
            arrays["actions"][1:total, 1] = np.arange(total - 1) - np.repeat(firsts, shares)
        return arrays

    def _fitting(self, setting: str, places: np.ndarray, view: View) -> np.ndarray:
        most = getattr(self.settings, setting)
        if len(places) > most:
            self._check(setting, len(places), view)
        return places[:most]

    def _check(self, setting: str, actual: int, view: View) -> None:
        """Raise a UserError for what does not fit; with `truncate`, warn once for each setting."""
        problem = (
            f"{setting}: expected at most {getattr(self.settings, setting)} in the graph that "
            f"{view.name} has become after {view.num_steps} steps, found {actual}"
        )
        if not self.settings.truncate:
            raise UserError(f"{problem}; raise {setting}, or set truncate to leave out the rest")
        if setting not in self._warned:
            self._warned.add(setting)
            warnings.warn(f"{problem}; the rest is left out", stacklevel=2)


def _describe(rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """Return `rule_ids` and `rule_targets` as read-only arrays."""
    ids = np.zeros(len(rules) + 1, np.int32)
    targets = np.zeros((len(rules) + 1, _NUM_TARGETS), np.int32)
    for number, rule in enumerate(rules):
        ids[number] = zlib.crc32(rule.name.encode()) & _MOST_ID
        kinds = [NUMBERS[op] for op in _operators(rule.target)][:_NUM_TARGETS]
        targets[number, : len(kinds)] = kinds
    for array in (ids, targets):
        array.setflags(write=False)
    return ids, targets


def _operators(expressions: Sequence[Expression | None]) -> list[str]:
    """Return the operators of some expressions, each application once, the outermost ones first.

    Applications at the same depth are listed from left to right.
    """
    ops: dict[tuple[object, ...], str] = {}
    level: Sequence[Expression | None] = expressions
    while level:
        applied = [expression for expression in level if isinstance(expression, Apply)]
        for apply in applied:
            # Several outputs of the same application are one application.
            ops.setdefault((apply.op, apply.inputs, apply.attributes), apply.op)
        level = [argument for apply in applied for argument in apply.inputs]
    return list(ops.values())


def _num_nodes(expression: Expression | None) -> int:
    if not isinstance(expression, Apply):
        return 0
    return 1 + sum(map(_num_nodes, expression.inputs))
