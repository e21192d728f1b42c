"""Rewriting a graph of tensor operations as a TF-Agents environment (thesis, 3.2)."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.contexts import ContextSampler
from environments.errors import UserError
from environments.tensor_graphs import models, objectives, onnx_io, rewards
from environments.tensor_graphs import rules as rule_files
from environments.tensor_graphs.backends import backend
from environments.tensor_graphs.engine import Engine, State
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.matching import Match
from environments.tensor_graphs.nodes import Change
from environments.tensor_graphs.observation import Observer, Sizes
from environments.tensor_graphs.rewards import Figures, MeasureFn
from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.tracking import BYTES, FLOPS, KERNELS, Tracker
from environments.tensor_graphs.view import View

_MOST_STARTS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """What an episode starts from.

    Attributes:
      name: as people call it.
      graph: as it is before anything was done to it.
      state: of that graph, if an episode of the environment that it is for has been there: saves
        looking for all that matches.
    """

    name: str
    graph: Graph
    state: State | None = None

    @classmethod
    def load(cls, name: str, seed: int = 0) -> Model:
        """A model of `models.NAMES`, or a file.

        Args:
          name: of the model or the file.
          seed: of the weights of a model of `models.NAMES`.

        Raises:
          UserError: there is none, or it cannot be read.
        """
        if name in models.NAMES:
            return cls(name, onnx_io.read(models.make(name, seed)))
        return cls(name, onnx_io.read(pathlib.Path(name)))


@dataclasses.dataclass(frozen=True)
class Substituted:
    """A step of an episode.

    Attributes:
      xfer: name of the rule.
      location: of the match.
      cost_ms: of the graph after it.
    """

    xfer: str
    location: tuple[int, ...]
    cost_ms: float


class TensorGraphEnvironment(py_environment.PyEnvironment):
    """One episode rewrites one model, one step applies one rule at one place.

    Context: a `Model`.

    Observation: a dict of arrays: the padded graph with its features, `xfer_mask`,
      `location_masks`, and all allowed actions with the nodes that they touch; see `observation`,
      `features` and `graph_observation`. All is kept up to date from step to step: no graph is
      built in order to observe it.

    Action: int32 [2], (xfer_id, location): the match number `location` of rule number `xfer_id`
      (thesis, 3.2.3). NO-OP is (number of rules, 0).

    Reward: how much better the graph became, in percent of what the model's first graph costs, as
      `reward` says: see `rewards`. An action that the masks do not allow changes nothing and has
      the reward `rewards.INVALID`, -100; the masks are exact, so nobody who heeds them meets it.

    End: with NO-OP, which `may_stop` may forbid, when no rule matches any more, or after
      `max_steps` steps, invalid ones included. The discount is 1 until then and 0 at the end. Of a
      model on which no rule matches the first step, whatever it is, ends the episode.

    Costs are those of the objective, sums over operators (`objectives`). With `measure_every` n,
    the whole model is measured against the model's first graph after every n-th step, and at the
    end: RT is then what was measured, and between measurements the last one, corrected by what the
    objective says has changed since. The rewards of an episode with `reward` "runtime" so add up to
    what was measured in the end.

    But for measurements, of operators where they are not known yet and of whole models, the seed
    and the actions decide everything.

    Args:
      sampler: draws the model of each episode.
      rules: that can be applied; by default those that come with the package.
      objective: gives costs; by default what is measured with onnxruntime on this machine.
      seed: of the sampler's random generator.
      reward: one of `rewards.REWARDS` or `rewards.SYMBOLS`.
      alpha: weight of the runtime in "runtime_and_memory".
      beta: weight of the memory that is accessed, likewise.
      max_steps: an episode has at most.
      sizes: what an observation has room for; more is an error, or left out.
      masked: whether masks are shown. Without, all of `xfer_mask` and `location_masks` is True, and
        a policy has to learn from -100 what it cannot do.
      may_stop: whether NO-OP is allowed while a rule matches. Where the best graph of an episode is
        what counts, stopping gains nothing, and it is the first thing that is learned where most
        steps make graphs dearer.
      constants: whether weights and other constants are nodes of the observation. Without them
        graphs have about half as many nodes; which inputs are constant is still said of each node.
      measure_every: steps between measurements of the whole model; 0 for none.
      measure_fn: measures; by default end to end with onnxruntime, for about a second.
    """

    def __init__(
        self,
        sampler: ContextSampler[Model],
        rules: Sequence[Substitution] | None = None,
        objective: objectives.Objective | None = None,
        seed: int = 0,
        reward: str = "runtime",
        alpha: float = 0.8,
        beta: float = 0.2,
        max_steps: int = 200,
        sizes: Sizes | None = None,
        masked: bool = True,
        may_stop: bool = True,
        constants: bool = True,
        measure_every: int = 0,
        measure_fn: MeasureFn | None = None,
    ) -> None:
        super().__init__(handle_auto_reset=True)
        if max_steps < 1:
            raise UserError(f"max_steps: expected 1 or more, found {max_steps}; correct it")
        if measure_every < 0:
            raise UserError(f"measure_every: expected 0 or more, found {measure_every}; correct it")
        self._sampler = sampler
        self._generator = np.random.default_rng(seed)
        self._costs = _Costs(objectives.make_objective() if objective is None else objective)
        self._engine = Engine(rule_files.load() if rules is None else rules, self._costs)
        self._observer = Observer(self._engine.rules, sizes or Sizes())
        self._reward_fn = rewards.make_reward(reward, alpha, beta)
        self._max_steps, self._masked, self._constants = max_steps, masked, constants
        self._may_stop = may_stop
        self._measure_every = measure_every
        if measure_every and measure_fn is None:
            measure_fn = rewards.end_to_end(backend())
        self._measure_fn = measure_fn
        self._starts: collections.OrderedDict[Model, View] = collections.OrderedDict()
        self._view: View | None = None
        self._best: State | None = None
        self._measured: tuple[Graph | None, float] = None, 1.0
        self._allowed = np.zeros((0, 0), np.bool_)
        self._figures, self._estimated = Figures(1.0, 1.0, 1.0), 1.0
        self._num_steps = self._num_invalid = 0
        self._trail: list[Substituted] = []
        self._info: dict[str, Any] = {}

    @property
    def rules(self) -> tuple[Substitution, ...]:
        """The rules, as actions number them."""
        return self._engine.rules

    @property
    def no_op(self) -> np.ndarray:
        """The action that ends an episode."""
        return np.array((len(self.rules), 0), np.int32)

    @property
    def state(self) -> State | None:
        """Where the episode is, or has ended; None before the first one."""
        return self._view.state if self._view else None

    @property
    def best(self) -> State | None:
        """The cheapest state of this episode."""
        return self._best

    @property
    def trail(self) -> tuple[Substituted, ...]:
        """What was applied in this episode."""
        return tuple(self._trail)

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        """See `observation` and `graph_observation`."""
        return self._observer.specs()

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """(xfer_id, location)."""
        most = len(self.rules), self._observer.sizes.max_locations - 1
        return array_spec.BoundedArraySpec((2,), np.int32, (0, 0), most, "xfer_id_and_location")

    def get_info(self) -> dict[str, Any]:
        """What came of the episode that ended last.

        Returns:
          `context`, the model's name; `steps`, and `invalid_steps` among them; `cost_ms`,
          `best_cost_ms` and `start_cost_ms`, of the last graph, of the cheapest one and of the
          first one, as the objective has it; `flops`, `bytes_moved` and `num_kernels` of the last
          graph and, with `start_` before the name, of the first one; with `measure_every` also
          `measured_ratio`, the last graph's measured time over the first one's. Empty until an
          episode has ended.
        """
        return dict(self._info)

    def seed(self, seed: int | np.random.Generator) -> None:
        """Starts the sampler's random generator anew; holds from the next episode on."""
        self._generator = np.random.default_rng(seed)

    def _reset(self) -> ts.TimeStep:
        self._current_time_step = None
        self._view = self._start(self._sampler(self._generator))
        self._best = self._view.state
        self._figures, self._estimated = Figures(1.0, 1.0, 1.0), 1.0
        self._measured = self._view.state.graph, 1.0
        self._num_steps = self._num_invalid = 0
        self._trail = []
        return ts.TimeStep(_FIRST, _NO_REWARD, _ONE, self._observe(self._view))

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        assert self._view is not None
        xfer, location = self._checked(action)
        try:
            return self._take(self._view, xfer, location)
        except BaseException:
            # The episode cannot go on; the next call of `step` starts another.
            self._current_time_step = None
            raise

    def _take(self, view: View, xfer: int, location: int) -> ts.TimeStep:
        self._num_steps += 1
        is_no_op = xfer == len(self.rules)
        is_valid = bool(self._allowed[xfer, location])
        is_last = is_valid and is_no_op
        if is_valid and not is_no_op:
            self._apply(view, view.state.matches_by_rule[xfer][location])
        is_last |= self._num_steps >= self._max_steps or not view.state.num_matches.any()
        before, self._figures = self._figures, self._figures_of(view, is_last)
        if is_valid:
            reward = self._reward_fn(before, self._figures, is_last)
        else:
            reward = rewards.INVALID
            self._num_invalid += 1
        step_type, discount = (_LAST, _ZERO) if is_last else (_MID, _ONE)
        observation = self._observe(view)
        if is_last:
            self._info = self._told(view)
        return ts.TimeStep(step_type, np.asarray(reward, np.float32), discount, observation)

    def _checked(self, action: np.ndarray) -> tuple[int, int]:
        chosen = np.asarray(action)
        most = len(self.rules), self._observer.sizes.max_locations - 1
        if chosen.shape != (2,) or not np.all((chosen >= 0) & (chosen <= most)):
            raise ValueError(
                f"action: expected (xfer_id, location) from (0, 0) to {most}, found "
                f"{chosen.tolist()}; give one of them"
            )
        return int(chosen[0]), int(chosen[1])

    def _apply(self, view: View, match: Match) -> None:
        self._costs.asked.clear()
        state = view.state.apply(match)
        view.advance(state, self._costs.asked)
        self._trail.append(Substituted(match.xfer, match.location, state.cost_ms))
        if self._best is None or state.cost_ms < self._best.cost_ms:
            self._best = state

    def _figures_of(self, view: View, is_last: bool) -> Figures:
        """RT and M as they are known now."""
        runtime = self._figures.runtime + view.cost - self._estimated
        self._estimated = view.cost
        n = self._measure_every
        if n and self._measure_fn and (is_last or self._num_steps % n == 0):
            first, graph = view.first.graph, view.state.graph
            if graph is not self._measured[0]:
                self._measured = graph, self._measure_fn(first, graph)
            runtime = self._measured[1]
        return Figures(runtime, view.memory, min(self._figures.least, runtime))

    def _start(self, model: Model) -> View:
        """The first view of a model, known from earlier episodes or not."""
        known = self._starts.get(model)
        if known is None:
            state = model.state
            if state is None or state.engine is not self._engine:
                state = self._engine.start(model.graph)
            tracker = Tracker(state.graph, state.node_costs_ms, self._constants)
            known = self._starts[model] = View(model.name, state, tracker)
            if len(self._starts) > _MOST_STARTS:
                self._starts.popitem(last=False)
        self._starts.move_to_end(model)
        return known.copy()

    def _observe(self, view: View) -> dict[str, np.ndarray]:
        observation = self._observer.observe(view, self._num_steps / self._max_steps)
        if not self._may_stop and observation["xfer_mask"][:-1].any():
            observation["xfer_mask"][-1] = False
            observation["location_masks"][-1] = False
            observation["action_mask"][0] = False
        self._allowed = observation["location_masks"]
        if not self._masked:
            for name in ("xfer_mask", "location_masks"):
                observation[name] = np.ones_like(observation[name])
        return observation

    def _told(self, view: View) -> dict[str, Any]:
        info: dict[str, Any] = {
            "context": view.name,
            "steps": self._num_steps,
            "invalid_steps": self._num_invalid,
            "cost_ms": view.state.cost_ms,
            "best_cost_ms": self._best.cost_ms if self._best else view.state.cost_ms,
            "start_cost_ms": view.start_cost_ms,
        }
        for prefix, work in (("", view.work), ("start_", view.start_work)):
            info[f"{prefix}flops"] = float(work[FLOPS])
            info[f"{prefix}bytes_moved"] = float(work[BYTES])
            info[f"{prefix}num_kernels"] = float(work[KERNELS])
        if self._measure_every:
            info["measured_ratio"] = self._figures.runtime
        return info


class _Costs:
    """An objective that remembers what it was asked: the engine asks where something changed.

    Attributes:
      asked: costs by number of the node.
    """

    def __init__(self, objective: objectives.Objective) -> None:
        self.asked: dict[int, float] = {}
        self._objective = objective

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        cost_ms = self.asked[number] = self._objective.node_cost_ms(graph, number)
        return cost_ms

    def affected(self, before: Graph, after: Graph, change: Change) -> set[int]:
        return objectives.affected(self._objective, before, after, change)


def _constant(value: Any, dtype: type) -> np.ndarray:
    made: np.ndarray = np.asarray(value, dtype)
    made.setflags(write=False)
    return made


_FIRST, _MID, _LAST = (
    _constant(one, np.int32) for one in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST)
)
_NO_REWARD, _ZERO, _ONE = (_constant(one, np.float32) for one in (0, 0, 1))
