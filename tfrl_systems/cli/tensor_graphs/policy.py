"""A learned policy that rewrites graphs: NumPy alone, no TensorFlow."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments import contexts
from environments.errors import UserError
from environments.tensor_graphs.environment import Model, TensorGraphEnvironment
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.objectives import Objective
from environments.tensor_graphs.observation import VOCABULARY, Sizes
from environments.tensor_graphs.search import Player, State, Step
from environments.tensor_graphs.search.results import step_of
from environments.tensor_graphs.substitutions import Substitution
from tfrl_systems.policies import distributions, policy_files
from tfrl_systems.policies.optimizer_policy import load_network

# How much larger than those that a policy was trained on graphs may be.
_ROOM = 4
# That are remembered, of which an environment remembers as many.
_MOST_STARTS = 64


class GraphPolicy:
    """Plays episodes of `TensorGraphEnvironment`.

    Args:
      network: with `parameters` and `mode`, of observations with a leading axis [B].
      settings: of the environment that it was trained in, for `make_environment`.
      seed: of the actions that are drawn.
    """

    def __init__(
        self, network: Any, settings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self._network = network
        self._settings = settings or {}
        self._seed = seed

    @classmethod
    def load(cls, directory: pathlib.Path | str, seed: int = 0) -> GraphPolicy:
        """Reads a directory that `tfrl train tensor_graphs` wrote.

        Raises:
          UserError: there is no policy, one of something else or of other features, or its files
            are damaged.
        """
        described = policy_files.load_policy_json(directory)
        if described["kind"] != "graph_actor":
            raise UserError(
                f"{directory}: expected a policy of tensor_graphs, found one of "
                f"{described.get('environment', 'something else')}; name another"
            )
        if described.get("vocabulary") != VOCABULARY:
            raise UserError(
                f"{directory}: expected a policy that knows graphs by the vocabulary {VOCABULARY}, "
                f"found {described.get('vocabulary')}: operators or features are others by now; "
                "train again"
            )
        return cls(load_network(directory, "graph_actor"), _settings_of(directory, described), seed)

    def make_environment(
        self, name: str, graph: Graph, rules: Sequence[Substitution], objective: Objective
    ) -> TensorGraphEnvironment:
        """Where it can rewrite a model, which may be larger than those that it was trained on.

        Args:
          name: of the model.
          graph: of the model.
          rules: those that it was trained with, or others.
          objective: gives costs.
        """
        return self.environment_of(contexts.uniform([Model(name, graph)]), rules, objective)

    def environment_of(
        self,
        sampler: contexts.ContextSampler[Model],
        rules: Sequence[Substitution],
        objective: Objective,
    ) -> TensorGraphEnvironment:
        """The same for models that `sampler` draws."""
        known = self._settings
        sizes = Sizes(
            max_nodes=_ROOM * known["max_nodes"],
            max_edges=_ROOM * known["max_edges"],
            max_locations=known["max_locations"],
            max_actions=_ROOM * known["max_actions"],
            truncate=True,
        )
        return TensorGraphEnvironment(
            sampler,
            rules,
            objective,
            max_steps=known["max_steps"],
            may_stop=bool(known["may_stop"]),
            sizes=sizes,
            constants=bool(known["constants"]),
        )

    def player(self, name: str, rules: Sequence[Substitution], objective: Objective) -> Player:
        """Plays where it is told to, for `search.follow`.

        Args:
          name: of the model.
          rules: as in `make_environment`.
          objective: likewise.
        """
        return _Player(self, name, rules, objective)

    def play(
        self, environment: TensorGraphEnvironment, number: int = 0, *, by_chance: bool = False
    ) -> Iterator[tuple[Step, State]]:
        """Plays an episode, as far as it is asked to go on.

        Args:
          environment: is reset, and stepped for each item.
          number: of the episode. In the first, 0, each action is the likeliest one; in the others
            it is drawn, with chance that the seed and the number decide.
          by_chance: whether all actions are equally likely.

        Yields:
          Each rule that is applied, with the state after it.
        """
        generator = np.random.default_rng([self._seed, number])
        time_step = environment.reset()
        num_applied = 0
        while not time_step.is_last():
            if by_chance:
                action = _any_action(time_step.observation, generator)
            else:
                action = self._act(time_step.observation, number, generator)
            time_step = environment.step(action)
            if len(environment.trail) > num_applied:
                num_applied += 1
                assert environment.state is not None
                yield step_of(environment.trail[-1]), environment.state

    def draw_all(self, observation: Mapping[str, np.ndarray], number: int) -> np.ndarray:
        """All allowed actions but NO-OP, int32 [M, 2], drawn one after another, none twice.

        Args:
          observation: of an environment.
          number: decides, with the seed, the chance.
        """
        generator = np.random.default_rng([self._seed, number])
        logits = self._network.parameters(_batched(observation))["logits"][0]
        # The largest of logits with Gumbel noise is a draw, the next one is a draw of the rest, …
        order = np.argsort(-(logits + generator.gumbel(size=len(logits))), kind="stable")
        is_match = observation["action_mask"] & (
            observation["actions"][:, 0] < len(observation["rule_ids"]) - 1
        )
        drawn: np.ndarray = observation["actions"][order[is_match[order]]]
        return drawn

    def _act(
        self,
        observation: Mapping[str, np.ndarray],
        number: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        batch = _batched(observation)
        if number == 0:
            return self._network.mode(batch)[0]
        return distributions.draw(self._network.parameters(batch), generator)[0]


def _any_action(
    observation: Mapping[str, np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """One of those that are allowed."""
    actions: np.ndarray = observation["actions"][observation["action_mask"]]
    drawn: np.ndarray = actions[generator.integers(len(actions))]
    return drawn


class _Player:
    """A policy on one model; see `search.Player`."""

    def __init__(
        self,
        policy: GraphPolicy,
        name: str,
        rules: Sequence[Substitution],
        objective: Objective,
    ) -> None:
        self._policy = policy
        self._start: Model
        # One environment for all: its engine remembers what rules make.
        self._environment = policy.environment_of(lambda _: self._start, rules, objective)
        self._num_looks: collections.Counter[Step] = collections.Counter()

        # Not by graph: equal ones may number their nodes differently, and steps name nodes by
        # number.
        @functools.lru_cache(maxsize=_MOST_STARTS)
        def model_of(start: Any) -> Model:
            return Model(name, start.graph, start)

        self._model_of = model_of

    def play(
        self, number: int, start: Any, *, by_chance: bool = False
    ) -> Iterator[tuple[Step, State]]:
        self._start = self._model_of(start)
        yield from self._policy.play(self._environment, number, by_chance=by_chance)

    def look(self, number: int, start: Any) -> Iterator[tuple[Step, State]]:
        """What was looked at least comes first; of that, what the policy draws first."""
        self._start = self._model_of(start)
        drawn = self._policy.draw_all(self._environment.reset().observation, number)
        state = self._environment.state
        assert state is not None
        matches = [state.matches_by_rule[xfer][location] for xfer, location in drawn]
        by_step = {step_of(match): match for match in matches}
        for step in sorted(by_step, key=self._num_looks.__getitem__):
            self._num_looks[step] += 1
            yield step, state.apply(by_step[step])


class Chance:
    """In place of a network that has learned something: all actions are equally likely."""

    def parameters(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `distributions`; `observation` has a leading axis [B]."""
        logits = np.where(observation["action_mask"], np.float32(0), -np.inf)
        return {"logits": logits, "actions": observation["actions"]}

    def mode(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first action that there is, of each row."""
        return distributions.mode(self.parameters(observation))


def _batched(observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with a leading axis of 1."""
    return {name: array[np.newaxis] for name, array in observation.items()}


def _settings_of(directory: pathlib.Path | str, described: Mapping[str, Any]) -> dict[str, int]:
    """Settings of the environment, from policy.json."""
    sizes = [field.name for field in dataclasses.fields(Sizes) if field.name != "truncate"]
    names = (*sizes, "max_steps", "may_stop", "constants")
    found = {name: described.get(name) for name in names}
    for name, value in found.items():
        if not isinstance(value, int):
            raise UserError(
                f"{directory}: expected a whole number {name} in policy.json, found {value!r}; "
                "export the policy again"
            )
    return {name: value for name, value in found.items() if isinstance(value, int)}
