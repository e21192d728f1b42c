"""A learned policy that rewrites graphs: NumPy alone, no TensorFlow."""

from __future__ import annotations

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
from environments.tensor_graphs.search import PlayFn, State, Step
from environments.tensor_graphs.substitutions import Substitution
from tfrl_systems.policies import distributions, policy_files
from tfrl_systems.policies.optimizer_policy import load_network

# How much larger than those that a policy was trained on graphs may be.
_ROOM = 4
# In every fourth episode.
_CHANCE_EVERY, _CHANCE_AT = 4, 3
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
        return self._environment(contexts.uniform([Model(name, graph)]), rules, objective)

    def _environment(
        self,
        sampler: contexts.ContextSampler[Model],
        rules: Sequence[Substitution],
        objective: Objective,
    ) -> TensorGraphEnvironment:
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

    def player(self, name: str, rules: Sequence[Substitution], objective: Objective) -> PlayFn:
        """Plays episodes that begin where it is told, for `search.follow`; see `play`.

        Args:
          name: of the model.
          rules: as in `make_environment`.
          objective: likewise.
        """
        # One environment for all: its engine remembers what rules make.
        first: list[Model] = []
        environment = self._environment(lambda _: first[0], rules, objective)

        # Not by graph: equal ones may number their nodes differently, and steps name nodes by
        # number.
        @functools.lru_cache(maxsize=_MOST_STARTS)
        def model_of(start: Any) -> Model:
            return Model(name, start.graph, start)

        def play(number: int, start: Any) -> Iterator[tuple[Step, State]]:
            first[:] = [model_of(start)]
            yield from self.play(environment, number)

        return play

    def play(
        self, environment: TensorGraphEnvironment, number: int = 0
    ) -> Iterator[tuple[Step, State]]:
        """Plays an episode, as far as it is asked to go on.

        Args:
          environment: is reset, and stepped for each item.
          number: of the episode. In the first, 0, each action is the likeliest one; in the others
            it is drawn, with chance that the seed and the number decide. In 3, 7, 11, … all actions
            are equally likely: of a model unlike those that it was trained on, a policy may be
            sure and wrong.

        Yields:
          Each rule that is applied, with the state after it.
        """
        generator = np.random.default_rng([self._seed, number])
        time_step = environment.reset()
        num_applied = 0
        while not time_step.is_last():
            time_step = environment.step(self._act(time_step.observation, number, generator))
            if len(environment.trail) > num_applied:
                num_applied += 1
                last = environment.trail[-1]
                assert environment.state is not None
                yield Step(last.xfer, last.location), environment.state

    def _act(
        self,
        observation: Mapping[str, np.ndarray],
        number: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        if number % _CHANCE_EVERY == _CHANCE_AT:
            actions: np.ndarray = observation["actions"][observation["action_mask"]]
            return actions[generator.integers(len(actions))]
        batch = {name: array[np.newaxis] for name, array in observation.items()}
        if number == 0:
            return self._network.mode(batch)[0]
        return distributions.draw(self._network.parameters(batch), generator)[0]


class Chance:
    """In place of a network that has learned something: all actions are equally likely."""

    def parameters(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `distributions`; `observation` has a leading axis [B]."""
        logits = np.where(observation["action_mask"], np.float32(0), -np.inf)
        return {"logits": logits, "actions": observation["actions"]}

    def mode(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first action that there is, of each row."""
        return distributions.mode(self.parameters(observation))


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
