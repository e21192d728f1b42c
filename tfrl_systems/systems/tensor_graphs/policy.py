"""A learned policy that rewrites graphs, in NumPy without TensorFlow."""

from __future__ import annotations

import collections
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.tensor_graphs.episode import Episode, Episodes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.observation.observation import VOCABULARY, is_understood
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.search.rollouts import patience_with
from environments.tensor_graphs.settings import SIZES, Settings
from tfrl_systems.policies import distributions, policy_files
from tfrl_systems.policies.numpy_actor import load_network

# How many times more room an observation has than it had in training, and than a model needs
# before any step.
_ROOM, _GROWTH = 4, 2
# Logits that differ by less, relative to the largest, are as good as equal.
_ROUNDING = 1e-5
# Heads that know rules and locations by their numbers: rules and number of locations are fixed.
_BY_NUMBERS = ("hierarchical", "numbered")
_KINDS = ("graph_actor", "controller")


class GraphPolicy:
    """A policy that plays episodes.

    Args:
      network: maps observations with a leading axis [B] to the parameters of a distribution, by its
        method `parameters`.
      settings: settings of the environment that the policy was trained in, and the network's
        `head`, if it has one; `make_episodes` needs them.
      seed: seed of the actions that are drawn.
    """

    def __init__(
        self, network: Any, settings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self.network = network
        self.settings = settings or {}
        self._seed = seed

    @classmethod
    def load(cls, directory: pathlib.Path | str, seed: int = 0) -> GraphPolicy:
        """Load a policy from a directory that `tfrl train tensor_graphs` wrote.

        Raises:
          UserError: the directory holds no policy, or one for another system or other features, or
            its files are damaged.
        """
        described = policy_files.load_policy_json(directory)
        if described["kind"] not in _KINDS or described.get("vocabulary") is None:
            raise UserError(
                f"{directory}: expected a policy of tensor_graphs, found one of "
                f"{described.get('environment', 'something else')}; name another"
            )
        if not is_understood(described["vocabulary"]):
            raise UserError(
                f"{directory}: expected a policy that knows graphs by the vocabulary {VOCABULARY}, "
                f"found {described.get('vocabulary')}: operators or features are others by now; "
                "train again"
            )
        network = load_network(directory)
        return cls(network, _settings_of(directory, described), seed)

    def make_episodes(self, start: State) -> Episodes:
        """Prepare episodes on a model, which may be larger than those that it was trained on.

        They have the engine of `start`.

        Raises:
          UserError: the policy knows rules by their numbers, and these are other rules.
        """
        trained = self.settings
        needed = _needed(start)
        rooms = {name: max(_ROOM * trained[name], _GROWTH * needed[name]) for name in SIZES}
        if trained.get("head") in _BY_NUMBERS:
            self._check_rules(start.engine.rules)
            rooms["max_locations"] = trained["max_locations"]
        max_steps, patience = trained["max_steps"], trained.get("patience", 0)
        if patience:
            max_steps = max(max_steps, len(start.graph.nodes))
            patience = patience_with(start.graph, patience)
        settings = Settings(
            max_steps=max_steps,
            patience=patience,
            may_stop=bool(trained["may_stop"]),
            constants=bool(trained["constants"]),
            truncate=True,
            shown_costs=trained.get("shown_costs", "objective"),
            **rooms,
        )
        return Episodes(start.engine, settings)

    def _check_rules(self, rules: Sequence[Rule]) -> None:
        expected = self.settings.get("rules_sha256")
        if expected is not None and digest_of(rules) != expected:
            raise UserError(
                "policy: expected the rules that it was trained with, because it knows them by "
                f"their numbers, found {len(rules)} others; name their file with --rules, or train "
                "again"
            )

    def play(self, episode: Episode, number: int = 0) -> Iterator[tuple[Match, State]]:
        """Play an episode that has just begun, step by step as the caller asks for items.

        In the episode of index 0, the policy takes its likeliest actions, and where it comes back
        to a graph, the likeliest of those that it has not taken there. In the others it draws
        them, with random numbers that depend on the seed and the index.

        Yields:
          Each match that is applied, with the state after it.
        """
        # Episodes can be played in turn, or by several threads.
        network = self.network.new_episode()
        generator = np.random.default_rng([self._seed, number])
        taken = _Taken()
        while not episode.is_over:
            observation = _with_short_list(episode.observation)
            parameters = _parameters(network, observation)
            if number == 0:
                there = taken.at(episode.state)
                action = _likeliest(parameters, observation["action_mask"], there)
            else:
                action = distributions.draw(parameters, generator)[0]
            network.remember(action[np.newaxis])
            num_applied = len(episode.trail)
            episode.act(int(action[0]), int(action[1]))
            if len(episode.trail) > num_applied:
                yield episode.trail[-1], episode.state

    def draw_all(self, observation: Mapping[str, np.ndarray], number: int) -> np.ndarray:
        """Draw all allowed actions except NO-OP, without replacement: int32 [M, 2], in that order.

        The random numbers depend on the seed and the index of the episode.
        """
        generator = np.random.default_rng([self._seed, number])
        observation = _with_short_list(observation)
        logits = _parameters(self.network.new_episode(), observation)["logits"][0]
        # The action with the largest sum of logit and Gumbel noise is a draw from the distribution;
        # the next one is a draw from the rest, and so on.
        order = np.argsort(-(logits + generator.gumbel(size=len(logits))), kind="stable")
        is_match = observation["action_mask"] & (
            observation["actions"][:, 0] < len(observation["rule_ids"]) - 1
        )
        drawn: np.ndarray = observation["actions"][order[is_match[order]]]
        return drawn


class _Taken:
    """The numbers of the actions that were taken at each graph of an episode."""

    def __init__(self) -> None:
        # To hash a graph takes longer than to choose a step. So graphs are told apart by their
        # numbers of matches, and are hashed where these are equal.
        self._by_matches: dict[bytes, list[tuple[Graph, set[int]]]] = collections.defaultdict(list)

    def at(self, state: State) -> set[int]:
        """Return the numbers taken at a state's graph; what is added to the set stays."""
        alike = self._by_matches[state.num_matches.tobytes()]
        for graph, numbers in alike:
            if graph == state.graph:
                return numbers
        alike.append((state.graph, set()))
        return alike[-1][1]


def _needed(start: State) -> dict[str, int]:
    """Return how large an observation of a model is before any step."""
    nodes, num_matches = start.graph.nodes.values(), start.num_matches
    return {
        "max_nodes": len(nodes),
        "max_edges": sum(len(node.inputs) for node in nodes),
        "max_locations": int(num_matches.max(initial=0)),
        "max_actions": int(num_matches.sum()) + 1,
    }


def _with_short_list(observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return an observation without the padding of its list of actions.

    There is room for many times more actions than most graphs have, and work for each room.
    """
    num_listed = int(observation["action_mask"].nonzero()[0][-1]) + 1
    return {
        name: array[:num_listed] if name.startswith("action") else array
        for name, array in observation.items()
    }


def _parameters(network: Any, observation: Mapping[str, np.ndarray]) -> distributions.Parameters:
    """Return the parameters of the distribution of the action, with a leading axis of 1."""
    batch = {name: array[np.newaxis] for name, array in observation.items()}
    return distributions.of_list(network.parameters(batch), batch["actions"], batch["action_mask"])


def _likeliest(
    parameters: distributions.Parameters, is_allowed: np.ndarray, taken: set[int]
) -> np.ndarray:
    """Return the likeliest action that was not taken yet, int [2]; ties go to the first.

    Steps in layers that are alike have equal logits, but for rounding: how a logit was computed
    must not decide.

    Args:
      parameters: the distribution, with a leading axis of 1.
      is_allowed: bool [A], the actions that are allowed.
      taken: numbers of actions that were taken; this one is added. If all were taken, they are
        forgotten first.
    """
    if len(taken) == is_allowed.sum():
        taken.clear()
    is_left = is_allowed.copy()
    is_left[list(taken)] = False
    logits = np.where(is_left, parameters["logits"][0], -np.inf)
    largest = logits.max()
    chosen = int((logits >= largest - _ROUNDING * max(1.0, abs(largest))).argmax())
    taken.add(chosen)
    action: np.ndarray = parameters["actions"][0, chosen]
    return action


def _settings_of(directory: pathlib.Path | str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the environment, and the head, from policy.json."""
    names = (*SIZES, "max_steps", "may_stop", "constants")
    numbers = {name: described.get(name) for name in names}
    for name, value in numbers.items():
        if not isinstance(value, int):
            raise UserError(
                f"{directory}: expected a whole number {name} in policy.json, found {value!r}; "
                "export the policy again"
            )
    return {
        **numbers,
        # Policies of older versions have no patience, and saw the objective's costs.
        "patience": described.get("patience", 0),
        "shown_costs": described.get("shown_costs", "objective"),
        "head": described.get("head", "numbered"),
        "rules_sha256": described.get("rules_sha256"),
    }


def digest_of(rules: Sequence[Rule]) -> str:
    """Return a hash of the rules' names, in their order."""
    return hashlib.sha256(json.dumps([rule.name for rule in rules]).encode()).hexdigest()
