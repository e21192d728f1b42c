"""What BC-Max imitates on graphs: the best of several searches and of the last policy, per context.

A context is a model, or a graph that random steps made of it. In each context these play:

  teachers   searches, such as `regions`, each with the same number of expansions
  policy     the last policy by its likeliest actions, and episodes in which it draws its actions,
             which differ from the likeliest ones where it is unsure; BC-Max's Algorithm 3 tries
             the least certain actions instead, one more in each episode
  led        `regions`, from the cheapest graph of the policy's episode on

The path to the cheapest graph is the lesson of the context. Where `regions` finds more than the
policy, its steps from the policy's graph on are a second lesson. They begin where a policy ends
that has learned the first.

Most steps of a path do not depend on each other. So at each graph every step that the path takes
from there on, and that could be taken at once, is as good as the next one (`targets`). For every
other step the engine says how much dearer it makes the graph at once (`regrets`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree
from tf_agents.trajectories import trajectory

from environments.errors import UserError
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.search import METHODS, Budget, search
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures
from environments.tensor_graphs.search.results import Step, step_of
from environments.tensor_graphs.search.savings import Savings
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience, split_episodes
from tfrl_systems.networks.graph_actors import NEEDED
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

_MASK = (1 << 64) - 1
# Steps that make a graph dearer by more than this are equally bad.
_MAX_REGRET_PERCENT = 10.0
# Contexts in which nothing can be gained teach nothing; so many of them in a row end a chunk.
_MAX_WITHOUT_GAIN = 20


@dataclasses.dataclass(frozen=True)
class Teaching:
    """Who teaches, and for how long.

    Attributes:
      teachers: searches whose best path is imitated.
      teacher_expansions: steps that each search may try in a context.
      explored: episodes in each context in which the last policy draws its actions.
    """

    teachers: tuple[str, ...] = ("greedy", "taso", "regions")
    teacher_expansions: int = 600
    explored: int = 1

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
          UserError: there is no such search, or a number is too small.
        """
        for name in self.teachers:
            if name not in METHODS:
                raise UserError(
                    f"teachers: expected some of {', '.join(METHODS)}; found {name!r}; correct it"
                )
        for name, least in (("teacher_expansions", 1), ("explored", 0)):
            if getattr(self, name) < least:
                number = getattr(self, name)
                raise UserError(f"{name}: expected {least} or more, found {number}; correct it")


class Path(NamedTuple):
    """Steps from one state to one with a cheaper graph."""

    start: Any
    steps: tuple[Step, ...]
    end: Any


class Teacher:
    """Gives the best episodes in the contexts of a chunk (`jobs.Runner`).

    The info of its experience is, for each context:
      cost: of the cheapest graph that anyone has found, in microseconds.
      learned_cost: of the cheapest graph in the last policy's greedy episode, in microseconds; NaN
        if there is no learned policy yet.

    The environment draws the contexts. Its own patience is 0, as paths may need more; `patience`
    is that of the policy's episodes. With `has_regrets`, lessons say what other steps cost.
    """

    def __init__(
        self,
        environment: TensorGraphEnvironment,
        actor: NumpyActor,
        teaching: Teaching,
        patience: int,
        has_regrets: bool,
        num_contexts: int,
    ) -> None:
        self._environment, self._actor = environment, actor
        self._teaching, self._patience = teaching, patience
        self._has_regrets, self._num_contexts = has_regrets, num_contexts

    def load(self, data: bytes) -> None:
        """Load new variables into the policy."""
        self._actor.load(data)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def run(self, job: Chunk) -> Experience:
        """Return the lessons of the chunk's contexts, [B, T].

        Raises:
          ValueError: in too many contexts there is nothing to gain.
        """
        (seed,) = job.seed_sequence().generate_state(1)
        self._environment.seed(int(seed))
        rows: list[_Row] = []
        for number in range(self._num_contexts):
            for _ in range(_MAX_WITHOUT_GAIN):
                self._environment.reset()
                learned = job.iteration > 0
                if lessons := self._lessons(learned, job.index * self._num_contexts + number):
                    rows += lessons
                    break
            else:
                raise ValueError(
                    f"expected a model that a search makes cheaper, found none among "
                    f"{_MAX_WITHOUT_GAIN}; name others with --model, or raise teacher_expansions"
                )
        return _experience(rows)

    def _lessons(self, is_learned: bool, seed: int) -> list[_Row]:
        """Return the lessons of the context in which the environment is; none if none gains."""
        start: Any = self._environment.state
        # Different random steps lead to different graphs.
        name = f"{self._environment.context} {hash(start.graph) & _MASK:016x}"
        paths = [self._searched(teacher, start) for teacher in self._teaching.teachers]
        lessons, learned_cost = [], np.nan
        if is_learned:
            played = [
                self._played(start, name, number, seed)
                for number in range(1 + self._teaching.explored)
            ]
            greedy = played[0]
            learned_cost = greedy.end.cost_ms
            further = self._searched("regions", greedy.end)
            if further.end.cost_ms < greedy.end.cost_ms:
                paths.append(Path(start, greedy.steps + further.steps, further.end))
                lessons.append((f"{name} as the policy leaves it", further, np.nan))
            paths += played
        best = min(paths, key=lambda path: path.end.cost_ms)
        if best.end.cost_ms < start.cost_ms:
            lessons.append((name, best, 1000 * learned_cost))
        return [row for lesson in lessons for row in self._recorded(*lesson)]

    def _searched(self, method: str, start: Any) -> Path:
        result = search(start, method, Budget(expansions=self._teaching.teacher_expansions))
        return Path(start, result.path, result.best)

    def _played(self, start: Any, name: str, number: int, seed: int) -> Path:
        """Play an episode of the policy: by its likeliest actions if `number` is 0."""
        policy = GraphPolicy(self._actor.network, seed=seed)
        best, num_steps = start, 0
        episode = self._environment.episodes.begin(start, name)
        for taken, (_, state) in enumerate(policy.play(episode, number), 1):
            if state.cost_ms < best.cost_ms:
                best, num_steps = state, taken
            elif 0 < self._patience <= taken - num_steps:
                break
        return Path(start, tuple(map(step_of, episode.trail[:num_steps])), best)

    def _recorded(self, name: str, path: Path, learned_cost: float) -> Iterator[_Row]:
        """Yield the lesson of a path; none if observations have no room for its first step."""
        environment = self._environment
        time_step = environment.reset_to(path.start, name)
        savings, steps = Savings(), []
        # Behind its steps a lesson stops, where the policy may.
        for number in range(len(path.steps) + 1):
            observation = {field: time_step.observation[field] for field in NEEDED}
            state: Any = environment.state
            shares, action = _targets(state, observation, path.steps[number:])
            if action is None:
                break
            labels = {"targets": shares}
            if self._has_regrets:
                labels["regrets"] = regrets_of(
                    state, observation, shares, savings, path.end.cost_ms
                )
            begun = (time_step.step_type, observation, action, labels)
            after = environment.step(action)
            steps.append((*begun, after.step_type, after.reward, after.discount))
            time_step = after
            if after.is_last():
                break
        if steps:
            yield _Row(steps, name, 1000 * path.end.cost_ms, learned_cost)


class _Row(NamedTuple):
    """A lesson: the fields of a Trajectory for each step, and what it is about."""

    steps: list[tuple[Any, ...]]
    context: str
    cost: float
    learned_cost: float


def _listed(state: Any, observation: dict[str, np.ndarray]) -> Iterator[tuple[int, Any]]:
    """Yield the row and the match of each action that is listed, except NO-OP."""
    for row in np.flatnonzero(observation["action_mask"]):
        xfer, location = observation["actions"][row]
        if xfer < len(state.matches_by_rule):
            yield row, state.matches_by_rule[xfer][location]


def _targets(
    state: Any, observation: dict[str, np.ndarray], path: Sequence[Step]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the share of each listed action, float32 [A], and the action of the path's next step.

    After the last step it is NO-OP. The action is None if the observation does not list it.
    """
    wanted = set(path)
    shares = np.zeros(len(observation["action_mask"]), np.float32)
    if not path:
        shares[0] = observation["action_mask"][0]
        return shares, observation["actions"][0] if shares[0] else None
    following = None
    for row, match in _listed(state, observation):
        step = step_of(match)
        if step in wanted:
            shares[row] = 1
        if step == path[0]:
            following = observation["actions"][row]
    return shares / max(shares.sum(), 1), following


def regrets_of(
    state: Any,
    observation: dict[str, np.ndarray],
    shares: np.ndarray,
    savings: Savings,
    least_ms: float,
) -> np.ndarray:
    """Return how much dearer each listed action makes the graph, float32 [A]; 0 for those wanted.

    The unit is a percent of the present graph's cost. NO-OP forgoes what is saved up to `least_ms`.
    """
    signatures = NodeSignatures(state.graph)
    regrets = np.zeros(len(shares), np.float32)
    for row, match in _listed(state, observation):
        if not shares[row]:
            regrets[row] = 100 * savings.change_ms(state, signatures, match) / state.cost_ms
    may_stop = observation["action_mask"][0] and observation["actions"][0, 0] == len(
        state.matches_by_rule
    )
    if may_stop and not shares[0]:
        regrets[0] = 100 * (1 - least_ms / state.cost_ms)
    return np.clip(regrets, 0, _MAX_REGRET_PERCENT)


def _experience(lessons: Sequence[_Row]) -> Experience:
    steps = trajectory.Trajectory(
        *tree.map_structure(
            lambda *arrays: np.stack(arrays), *(step for row in lessons for step in row.steps)
        )
    )
    infos = [{"cost": row.cost, "learned_cost": row.learned_cost} for row in lessons]
    lengths = [len(row.steps) for row in lessons]
    return Experience.of(split_episodes(steps, lengths), [row.context for row in lessons], infos)
