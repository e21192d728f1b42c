"""Episodes that rewrite a model: what happens in `TensorGraphEnvironment`, without its rewards.

A policy plays them without TF-Agents, whose import takes seconds.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Sequence

import numpy as np

from environments.graph_observation import Arrays
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.observation.observation import Observer, without_list
from environments.tensor_graphs.observation.tracking import Tracker, View
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.settings import Settings

_MAX_STARTS = 64
"""The number of start states whose matches and features are cached."""


class Episode:
    """One episode; `Episodes.begin` begins it.

    Attributes:
      view: the current state, with the data that its observation is made from.
      trail: the matches that were applied, in order.
      num_steps, num_invalid: number of steps, and of those with an action that is not allowed.
      words: what the last step did, in words.
      observation: what a policy sees now; see `observation`.
      allowed: bool [R + 1, S], which locations of each rule, and of NO-OP, are allowed.
    """

    def __init__(self, view: View, observer: Observer, rules: Sequence[Rule]) -> None:
        self.view, self.best = view, view.state
        self.trail: list[Match] = []
        self.num_steps = self.num_invalid = self._num_without_gain = 0
        self.is_over, self.words = False, ""
        self._observer, self._rules = observer, rules
        self._settings = observer.settings
        self.observation, self.allowed = self._observe()

    @property
    def state(self) -> State:
        """The current state, or the last one if the episode has ended."""
        return self.view.state

    def copy(self) -> Episode:
        """Return the same episode, which goes its own way from now on."""
        twin = copy.copy(self)
        twin.view, twin.trail = self.view.copy(), list(self.trail)
        return twin

    def act(self, xfer: int, location: int) -> bool:
        """Take a step; return whether its action is allowed. One that is not changes nothing."""
        self.num_steps += 1
        self._num_without_gain += 1
        is_no_op = xfer == len(self._rules)
        is_valid = bool(self.allowed[xfer, location])
        self.words = "NO-OP" if is_no_op else f"{self._rules[xfer].name}, match {location}"
        if not is_valid:
            self.words += ", which is not allowed"
            self.num_invalid += 1
        elif not is_no_op:
            self._apply(self.state.matches_by_rule[xfer][location])
        self.is_over = (
            (is_valid and is_no_op)
            or 0 < self._settings.patience <= self._num_without_gain
            or self.num_steps >= self._settings.max_steps
            or not self.state.num_matches.any()
        )
        self.observation, self.allowed = self._observe()
        return is_valid

    def _apply(self, match: Match) -> None:
        state = self.state.apply(match)
        self.view.advance(state)
        self.trail.append(match)
        if state.cost_ms < self.best.cost_ms:
            self.best = state
            self._num_without_gain = 0

    def _observe(self) -> tuple[Arrays, np.ndarray]:
        share = self.num_steps / self._settings.max_steps
        observation = self._observer.observe(self.view, share)
        if not self._settings.may_stop and observation["xfer_mask"][:-1].any():
            observation["xfer_mask"][-1] = False
            observation["location_masks"][-1] = False
            observation["action_mask"][0] = False
        allowed = observation["location_masks"]
        if not self._settings.masked:
            observation = without_list(observation)
            for name in ("xfer_mask", "location_masks"):
                observation[name] = np.ones_like(observation[name])
        return observation, allowed


class Episodes:
    """Begins episodes, and keeps the matches and features of where they began.

    Attributes:
      rules: the rules; actions number them in this order.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        """Prepare to begin episodes, whose states are those of an engine.

        Raises:
          UserError: a setting cannot be used.
        """
        self._engine = engine
        self.rules = engine.rules
        self.observer = Observer(self.rules, settings)
        self._shows_constants = settings.constants
        self._sizes: Sizes = getattr(engine.objective, "sizes", NONE_OPEN)
        # Cached views of starts of episodes, the most recently used one last.
        self._starts: collections.OrderedDict[Model | State, View] = collections.OrderedDict()

    def begin(self, start: Model | State, name: str = "") -> Episode:
        """Begin an episode.

        Args:
          start: a model, or a state. If that is of another engine with the same rules and
            objective, its matches are searched for again.
          name: what the context is called; by default the name of the model.
        """
        return Episode(self.view(start, name), self.observer, self.rules)

    def view(self, start: Model | State, name: str = "") -> View:
        """Return the view that an episode begins with; arguments as for `begin`."""
        first = self._starts.get(start)
        if first is None:
            if isinstance(start, State) and start.engine is self._engine:
                state = start
            else:
                state = self._engine.start(start.graph)
            costs_ms, sizes = state.node_costs_ms, self._sizes
            tracker = Tracker(state.graph, costs_ms, self._shows_constants, sizes)
            is_model = isinstance(start, Model)
            first = self._starts[start] = View(name, state, tracker, is_model)
            if len(self._starts) > _MAX_STARTS:
                self._starts.popitem(last=False)
        self._starts.move_to_end(start)
        view = first.copy()
        view.name = name or (start.name if isinstance(start, Model) else "")
        return view
