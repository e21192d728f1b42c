"""A TF-Agents environment in which an episode rewrites a model's graph (thesis, 3.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments import contexts
from environments.contexts import ContextSampler
from environments.tensor_graphs import rewards
from environments.tensor_graphs.costs import objectives
from environments.tensor_graphs.episode import Episode, Episodes
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.sizes import NONE_OPEN
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.observation.observation import without_list
from environments.tensor_graphs.observation.tracking import BYTES, FLOPS, KERNELS
from environments.tensor_graphs.rewards import Figures, MeasureFn
from environments.tensor_graphs.rewriting.engine import Engine, Objective, State
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.settings import Settings
from environments.views import Views


class TensorGraphEnvironment(py_environment.PyEnvironment):
    """An environment whose episodes each rewrite one model; a step applies one rule at one place.

    Context: a `Model`. With the setting `random_steps`, some random steps lead away from it before
      the episode begins. `reset_to` begins an episode at a state of any other episode instead.

    Observation: a dict of arrays: the padded graph with its features, `xfer_mask`,
      `location_masks`, and all allowed actions with the nodes that they touch. See `observation`,
      `features` and `graph_observation`.

    Action: int32 [2], (xfer_id, location): apply match number `location` of rule number `xfer_id`
      (thesis, 3.2.3). NO-OP is (number of rules, 0).

    Reward: how much better the graph became, in percent of the cost of the model's first graph. The
      setting `reward` chooses the formula; see `rewards`. An action that is not allowed changes
      nothing and has the reward `rewards.INVALID`, -100; the episode goes on, of which the thesis
      (3.2.4) says nothing. The masks allow exactly the valid actions, so a policy that follows them
      never gets this reward.

    End: an episode ends with NO-OP, when no rule matches any more, or after `max_steps` steps,
      which include those with invalid actions, or after `patience` steps in a row without a graph
      that is cheaper than all before. The setting `may_stop` can forbid NO-OP. The discount is 1
      before the end and 0 at the end. If no rule matches a model, the first step ends the episode,
      whatever its action is.

    The objective gives the costs, which are sums over operators (`objectives`). If `measure_every`
    is n > 0, the whole model is also measured against its first graph, after every n-th step and at
    the end. RT is then the measured value. Between measurements, RT is the last measured value plus
    the change that the objective has estimated since. So with `reward` "runtime", the rewards of an
    episode add up to what was measured at the end.

    The seed and the actions decide everything, except for measurements: those of operators whose
    cost is not known yet, and those of whole models.

    Args:
      rules: the rules that can be applied; by default those that come with the package.
      objective: gives the costs; by default they are measured with onnxruntime on this machine.
      seed: seed of the random generator that draws models and random steps.
      measure_fn: measures whole models; by default end to end with onnxruntime, for about a second.

    Attributes:
      episodes: begins episodes for who plays without TF-Agents.

    Raises:
      UserError: a setting, a rule or the objective cannot be used.
    """

    def __init__(
        self,
        sampler: ContextSampler[Model],
        settings: Settings | None = None,
        rules: Sequence[Rule] | None = None,
        objective: Objective | None = None,
        seed: int = 0,
        measure_fn: MeasureFn | None = None,
    ) -> None:
        super().__init__(handle_auto_reset=True)
        self._settings = settings = settings or Settings()
        self._sampler = sampler
        self._generator = np.random.default_rng(seed)
        objective = objectives.make_objective() if objective is None else objective
        engine = Engine(rule_files.load() if rules is None else rules, objective)
        self.episodes = Episodes(engine, settings)
        self._reward_fn = rewards.make_reward(settings.reward, settings.alpha, settings.beta)
        if settings.measure_every and measure_fn is None:
            sizes = getattr(objective, "sizes", NONE_OPEN)
            measure_fn = rewards.end_to_end(backend(), sizes=sizes)
        self._measure_fn = measure_fn
        self._episode: Episode | None = None
        self._info: dict[str, Any] = {}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules; actions number them in this order."""
        return self.episodes.rules

    @property
    def episode(self) -> Episode:
        """The current episode, or the last one; there must have been one."""
        assert self._episode is not None, "no episode has begun"
        return self._episode

    @property
    def state(self) -> State | None:
        """The current state, or the last one if the episode has ended; None before any episode."""
        return self._episode.state if self._episode else None

    @property
    def context(self) -> str:
        """The context of the current episode, or of the last one; "" before any episode."""
        return self._episode.view.name if self._episode else ""

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        """Return the spec of each array; see `observation` and `graph_observation`."""
        specs = self.episodes.observer.specs()
        return specs if self._settings.masked else without_list(specs)

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """Return the spec of an action: (xfer_id, location)."""
        most = len(self.rules), self._settings.max_locations - 1
        return array_spec.BoundedArraySpec((2,), np.int32, (0, 0), most, "xfer_id_and_location")

    def get_info(self) -> dict[str, Any]:
        """Return the results of the episode that ended last.

        Returns:
          A dict, empty until an episode has ended:
            context: name of the model; NAME+3 if the episode began 3 random steps away from it.
            steps, invalid_steps: number of steps, and of those with an invalid action.
            cost_ms, best_cost_ms, start_cost_ms: the objective's cost of the last graph, of the
              cheapest and of the first.
            flops, bytes_moved, num_kernels: the work of the last graph; with `start_` before the
              name, that of the first graph.
            measured_ratio: measured time of the last graph divided by that of the first; only with
              the setting `measure_every`.
        """
        return dict(self._info)

    def seed(self, seed: int | np.random.Generator) -> None:
        """Restart the random generator of models and random steps, from the next episode on."""
        self._generator = np.random.default_rng(seed)

    def reset_to(self, state: State, name: str = "") -> ts.TimeStep:
        """Start an episode at a given state.

        Rewards and observations compare later graphs with this state's graph, as if it were a
        model's first graph.

        Args:
          state: a state of this environment, or of another engine with the same rules and
            objective. In the latter case its matches are searched for again.
          name: the context that `get_info` returns.
        """
        self._current_time_step = None
        self._current_time_step = self._begin(self.episodes.begin(state, name))
        return self._current_time_step

    def reset_at(self, context: Model | str) -> ts.TimeStep:
        """Start an episode at a model.

        Args:
          context: the model, or the name of one of the sampler's (see `contexts.Named`), or what
            `Model.load` takes: a built-in model or a file.

        Raises:
          UserError: there is no such model, or it cannot be used.
        """
        self._current_time_step = None
        if isinstance(context, str):
            named = getattr(self._sampler, "contexts", {})
            context = named.get(context) or Model.load(context)
        self._current_time_step = self._begin(self.episodes.begin(context))
        return self._current_time_step

    def fork(self) -> TensorGraphEnvironment:
        """Return a copy of the environment in the middle of the same episode.

        From now on each goes its own way; both draw the same models if the sampler has no state of
        its own. They share the engine, and what it has measured.
        """
        twin = copy.copy(self)
        twin._generator = contexts.copy_generator(self._generator)
        twin._episode = self._episode.copy() if self._episode else None
        return twin

    def describe(self) -> str:
        """Return in words which rule the last step applied where, and what the graph costs."""
        if self._episode is None:
            return "no episode has begun"
        view, episode = self._episode.view, self._episode
        cost = f"{view.state.cost_ms:.4g} ms of {view.start_cost_ms:.4g}"
        step = f", step {episode.num_steps}, {episode.words}" if episode.num_steps else ""
        return f"{view.name}{step}: {cost}"

    def views(self) -> Views:
        """Return what else can be seen of the episode.

        Returns:
          By name: context, a digest of the first graph and the model's name, or "" if random
          steps or `reset_to` led elsewhere; costs, what `get_info` tells of the current graph;
          matches, those allowed as (xfer, location).
        """
        episode, view = self.episode, self.episode.view
        digest = f"{hash(view.first.graph) & (1 << 64) - 1:016x}"
        return Views(
            {
                "context": lambda: {"name": view.name if view.is_model else "", "digest": digest},
                "costs": lambda: self._info_of(episode),
                "matches": lambda: list(map(tuple, np.argwhere(episode.allowed[:-1]).tolist())),
            }
        )

    def _reset(self) -> ts.TimeStep:
        self._current_time_step = None
        model = self._sampler(self._generator)
        return self._begin(self._after_random_steps(model))

    def _after_random_steps(self, model: Model) -> Episode:
        if not self._settings.random_steps:
            return self.episodes.begin(model)
        state, taken = self.episodes.view(model).state, 0
        for _ in range(int(self._generator.integers(self._settings.random_steps + 1))):
            if not state.matches:
                break
            state = state.apply(state.matches[int(self._generator.integers(len(state.matches)))])
            taken += 1
        if not taken:
            return self.episodes.begin(model)
        return self.episodes.begin(state, f"{model.name}+{taken}")

    def _begin(self, episode: Episode) -> ts.TimeStep:
        self._episode = episode
        self._figures, self._estimated = Figures(1.0, 1.0, 1.0), 1.0
        self._measured = episode.state.graph, 1.0
        return ts.TimeStep(_FIRST, _NO_REWARD, _ONE, episode.observation)

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        xfer, location = self._checked(action)
        try:
            return self._act(self.episode, xfer, location)
        except BaseException:
            # The episode cannot go on; the next call of `step` starts another one.
            self._current_time_step = None
            raise

    def _act(self, episode: Episode, xfer: int, location: int) -> ts.TimeStep:
        is_valid = episode.act(xfer, location)
        before, self._figures = self._figures, self._figures_of(episode)
        reward = rewards.INVALID
        if is_valid:
            reward = self._reward_fn(before, self._figures, episode.is_over)
        step_type, discount = (_LAST, _ZERO) if episode.is_over else (_MID, _ONE)
        if episode.is_over:
            self._info = self._info_of(episode)
        return ts.TimeStep(step_type, np.asarray(reward, np.float32), discount, episode.observation)

    def _checked(self, action: np.ndarray) -> tuple[int, int]:
        chosen = np.asarray(action)
        most = len(self.rules), self._settings.max_locations - 1
        if chosen.shape != (2,) or not np.all((chosen >= 0) & (chosen <= most)):
            raise ValueError(
                f"action: expected (xfer_id, location) from (0, 0) to {most}, found "
                f"{chosen.tolist()}; give one of them"
            )
        return int(chosen[0]), int(chosen[1])

    def _figures_of(self, episode: Episode) -> Figures:
        """Return RT and M of the current graph; measure RT if a measurement is due."""
        view = episode.view
        runtime = self._figures.runtime + view.cost - self._estimated
        self._estimated = view.cost
        n = self._settings.measure_every
        if n and self._measure_fn and (episode.is_over or episode.num_steps % n == 0):
            first, graph = view.first.graph, view.state.graph
            if graph is not self._measured[0]:
                self._measured = graph, self._measure_fn(first, graph)
            runtime = self._measured[1]
        return Figures(runtime, view.memory, min(self._figures.least, runtime))

    def _info_of(self, episode: Episode) -> dict[str, Any]:
        view = episode.view
        info: dict[str, Any] = {
            "context": view.name,
            "steps": episode.num_steps,
            "invalid_steps": episode.num_invalid,
            "cost_ms": view.state.cost_ms,
            "best_cost_ms": episode.best.cost_ms,
            "start_cost_ms": view.start_cost_ms,
        }
        for prefix, work in (("", view.work), ("start_", view.start_work)):
            info[f"{prefix}flops"] = float(work[FLOPS])
            info[f"{prefix}bytes_moved"] = float(work[BYTES])
            info[f"{prefix}num_kernels"] = float(work[KERNELS])
        if self._settings.measure_every:
            info["measured_ratio"] = self._figures.runtime
        return info


def _constant(value: Any, dtype: type) -> np.ndarray:
    # Time steps share these arrays, so nobody may write to them.
    array: np.ndarray = np.asarray(value, dtype)
    array.setflags(write=False)
    return array


_FIRST, _MID, _LAST = (
    _constant(step_type, np.int32)
    for step_type in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST)
)
_NO_REWARD, _ZERO, _ONE = (_constant(number, np.float32) for number in (0, 0, 1))
