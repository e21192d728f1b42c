"""Episodes, and how they become the experience that agents are trained on.

How episodes of different lengths share one [B, T] Trajectory is decided here and nowhere else: the
padding is made of boundary steps (LAST, then FIRST), as TF-Agents has between two episodes, so that
whatever skips boundaries skips padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory


@dataclasses.dataclass(frozen=True)
class Episode:
    """One walk of a policy from a start to an end.

    Attributes:
      context: name of what it started from: a module, a graph, a point.
      trajectory: TF-Agents Trajectory of arrays [T, ...].
      info: what it came to: costs by name, with units in the names.
    """

    context: str
    trajectory: trajectory.Trajectory
    info: Mapping[str, Any]

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.trajectory.step_type)


def stack_episodes(episodes: Sequence[Episode]) -> trajectory.Trajectory:
    """Episodes side by side, [B, T] with the length of the longest.

    Shorter episodes are padded with boundary steps: step type LAST, next step type FIRST, reward 0,
    discount 1. Observation, action and policy info repeat the episode's last step, so that values
    stay in their ranges and log-probabilities finite.

    Args:
      episodes: at least one, each of at least one step.

    Raises:
      ValueError: there are none, or one is empty.
    """
    empty = [episode.context for episode in episodes if not episode.num_steps]
    if not episodes or empty:
        found = f"empty ones of {', '.join(empty)}" if empty else "none"
        raise ValueError(f"stack_episodes: expected episodes with steps, found {found}; drop them")
    length = max(episode.num_steps for episode in episodes)
    padded = [_pad(episode.trajectory, length) for episode in episodes]
    return tree.map_structure(lambda *arrays: np.stack(arrays), *padded)


def _pad(steps: trajectory.Trajectory, length: int) -> trajectory.Trajectory:
    missing = length - len(steps.step_type)

    def repeat_last(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])

    def fill(array: np.ndarray, value: float) -> np.ndarray:
        padding = np.full((missing, *array.shape[1:]), value, array.dtype)
        return np.concatenate([array, padding])

    return trajectory.Trajectory(
        step_type=fill(steps.step_type, ts.StepType.LAST),
        observation=tree.map_structure(repeat_last, steps.observation),
        action=tree.map_structure(repeat_last, steps.action),
        policy_info=tree.map_structure(repeat_last, steps.policy_info),
        next_step_type=fill(steps.next_step_type, ts.StepType.FIRST),
        reward=tree.map_structure(lambda array: fill(array, 0), steps.reward),
        discount=fill(steps.discount, 1),
    )


def step_weights(
    stacked: trajectory.Trajectory, episode_weights: np.ndarray | None = None
) -> np.ndarray:
    """Weights for cloning, float64 [B, T]: 0 on boundary steps, where no action was taken.

    Args:
      stacked: as `stack_episodes` returns it.
      episode_weights: weight of each episode [B]; 1 for each if None.
    """
    taken = (np.asarray(stacked.step_type) != ts.StepType.LAST).astype(np.float64)
    return taken if episode_weights is None else taken * np.asarray(episode_weights)[:, np.newaxis]


def best_per_context(episodes: Iterable[Episode], cost: str) -> list[Episode]:
    """The episode of least cost for each context; of equal ones the first.

    BC-Max (Marinov, Agarwal, Trofin, 2024), Algorithm 1, line 5, which prints argmin beside
    "highest reward": the text and Algorithm 2 have argmax of the reward, that is, argmin of a cost.

    Args:
      episodes: of any number of policies, those of the safest first.
      cost: name of the cost in the episodes' `info`.

    Returns:
      One episode for each context, in the order in which the contexts appear.
    """
    best: dict[str, Episode] = {}
    for episode in episodes:
        known = best.get(episode.context)
        if known is None or episode.info[cost] < known.info[cost]:
            best[episode.context] = episode
    return list(best.values())


def labelled_experience(
    names: Sequence[str],
    features: np.ndarray,
    actions: np.ndarray,
    weights: np.ndarray | None = None,
) -> tuple[trajectory.Trajectory, np.ndarray]:
    """Rows with a known good action, as experience and weights for a cloning agent's `train`.

    The rows need not come from one episode; each is a step in the middle of one.

    Args:
      names: of the features, F of them.
      features: int64 [N, F].
      actions: the action to clone, 0 or 1, [N].
      weights: [N]; 1 for each row if None.

    Returns:
      A Trajectory [1, N], its observation a dict by feature name, and weights float64 [1, N].
    """
    num_rows = len(features)
    columns = np.ascontiguousarray(np.asarray(features, np.int64).T)
    middle = np.full((1, num_rows), ts.StepType.MID, np.int32)
    experience = trajectory.Trajectory(
        step_type=middle,
        observation={name: columns[i][np.newaxis] for i, name in enumerate(names)},
        action=np.asarray(actions, np.int64)[np.newaxis],
        policy_info=(),
        next_step_type=middle,
        reward=np.zeros((1, num_rows), np.float32),
        discount=np.ones((1, num_rows), np.float32),
    )
    given = np.ones(num_rows) if weights is None else np.asarray(weights, np.float64)
    return experience, given[np.newaxis]
