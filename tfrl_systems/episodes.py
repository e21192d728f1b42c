"""Episodes, and how they become the experience that agents are trained on.

How episodes of different lengths share one [B, T] Trajectory is decided here and nowhere else: the
padding is made of boundary steps (LAST, then FIRST), as TF-Agents has between two episodes, so that
whatever skips boundaries skips padding.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
    steps = [episode.trajectory for episode in episodes]
    return split_episodes(
        tree.map_structure(lambda *arrays: np.concatenate(arrays), *steps),
        [episode.num_steps for episode in episodes],
    )


def split_episodes(steps: trajectory.Trajectory, lengths: Sequence[int]) -> trajectory.Trajectory:
    """Episodes one after another, put side by side as `stack_episodes` does.

    Args:
      steps: [N, ...].
      lengths: how many of the N each of the B episodes has, at least 1.

    Returns:
      [B, T, ...], T the greatest of the lengths.
    """
    num_rows, length = len(lengths), max(lengths)
    if num_rows * length == len(steps.step_type):
        return tree.map_structure(
            lambda array: array.reshape(num_rows, length, *array.shape[1:]), steps
        )
    num_steps = np.array(lengths)
    return _rows_of(steps, np.cumsum(num_steps) - num_steps, num_steps, length)


def end_episodes(steps: trajectory.Trajectory, lengths: np.ndarray) -> trajectory.Trajectory:
    """What a batch collected, with boundary steps in place of all that came after an episode's end.

    Args:
      steps: [B, T]; each row begins with an episode.
      lengths: int [B], the steps of each row's first episode, from 1 to T.

    Returns:
      [B, T'], T' the greatest of the lengths.
    """
    return _pad(steps, int(lengths.max()), lengths)


def _pad(
    steps: trajectory.Trajectory, length: int, lengths: np.ndarray | None = None
) -> trajectory.Trajectory:
    """Boundary steps after the first `lengths` steps of each row, all T of them if None."""
    num_rows, num_steps = steps.step_type.shape
    if num_steps == length and (lengths is None or np.all(lengths == length)):
        return steps
    if lengths is None:
        lengths = np.full(num_rows, num_steps)
    flat = tree.map_structure(lambda array: array.reshape(-1, *array.shape[2:]), steps)
    return _rows_of(flat, num_steps * np.arange(num_rows), lengths, length)


def _rows_of(
    steps: trajectory.Trajectory, starts: np.ndarray, lengths: np.ndarray, length: int
) -> trajectory.Trajectory:
    """Rows [B, T, ...] of steps [N, ...], and of boundary steps where a row's have ended.

    Args:
      steps: [N, ...].
      starts: int [B], where in them a row's begin.
      lengths: int [B], how many a row has.
      length: T.
    """
    number = np.arange(length)
    is_padding = number >= lengths[:, np.newaxis]
    kept = starts[:, np.newaxis] + np.minimum(number, lengths[:, np.newaxis] - 1)

    def repeat_last(array: np.ndarray) -> np.ndarray:
        return array[kept]

    def fill(array: np.ndarray, value: float) -> np.ndarray:
        filled = array[kept]
        filled[is_padding] = value
        return filled

    return trajectory.Trajectory(
        step_type=fill(steps.step_type, ts.StepType.LAST),
        observation=tree.map_structure(repeat_last, steps.observation),
        action=tree.map_structure(repeat_last, steps.action),
        policy_info=tree.map_structure(repeat_last, steps.policy_info),
        next_step_type=fill(steps.next_step_type, ts.StepType.FIRST),
        reward=tree.map_structure(lambda array: fill(array, 0), steps.reward),
        discount=fill(steps.discount, 1),
    )


@dataclasses.dataclass(frozen=True)
class Experience:
    """Many episodes side by side, as collected: what an agent is trained on.

    Attributes:
      trajectory: TF-Agents Trajectory of arrays [B, T, ...]; episodes shorter than T are padded as
        `stack_episodes` does.
      contexts: what each episode started from: names [B], or points float64 [B, n].
      info: costs by name, with units in the names, [B] each.
    """

    trajectory: trajectory.Trajectory
    contexts: np.ndarray
    info: Mapping[str, np.ndarray]

    @classmethod
    def stack(cls, episodes: Sequence[Episode]) -> Experience:
        """Of single episodes, all with the same names in their `info`.

        Raises:
          ValueError: there are none, or one is empty.
        """
        contexts = [episode.context for episode in episodes]
        return cls.of(stack_episodes(episodes), contexts, [episode.info for episode in episodes])

    @classmethod
    def of(
        cls,
        steps: trajectory.Trajectory,
        contexts: Sequence[str],
        infos: Sequence[Mapping[str, Any]],
    ) -> Experience:
        """Of steps [B, T, ...], and of what is told of each episode by itself.

        Args:
          steps: padded as `stack_episodes` does.
          contexts: of each episode.
          infos: of each episode, all with the same names.
        """
        info = {name: np.array([one[name] for one in infos]) for name in infos[0]}
        return cls(steps, np.array(contexts), info)

    @classmethod
    def concatenate(cls, parts: Sequence[Experience]) -> Experience:
        """The episodes of all parts, in their order.

        Raises:
          ValueError: there are no parts.
        """
        if not parts:
            raise ValueError("experience: expected parts to concatenate, found none; collect some")
        if len(parts) == 1:
            return parts[0]
        length = max(part.trajectory.step_type.shape[1] for part in parts)
        padded = [_pad(part.trajectory, length) for part in parts]
        return cls(
            tree.map_structure(lambda *arrays: np.concatenate(arrays), *padded),
            np.concatenate([part.contexts for part in parts]),
            {name: np.concatenate([part.info[name] for part in parts]) for name in parts[0].info},
        )

    def with_usual_length(self) -> Experience:
        """The same with T a power of two: TensorFlow makes a graph for every other length."""
        length = self.trajectory.step_type.shape[1]
        usual = 1 << (length - 1).bit_length()
        return dataclasses.replace(self, trajectory=_pad(self.trajectory, usual))

    @property
    def num_episodes(self) -> int:
        """B."""
        return len(self.trajectory.step_type)

    @property
    def num_steps(self) -> int:
        """Steps in which an action was taken, so without padding."""
        return int(np.count_nonzero(self.trajectory.step_type != ts.StepType.LAST))

    @property
    def mean_return(self) -> float:
        """Sum of an episode's rewards, without discount, on average."""
        return float(np.sum(self.trajectory.reward, dtype=np.float64)) / self.num_episodes

    def sha256(self) -> str:
        """Hash of every array with its name, dtype and shape: equal for the same bits only."""
        digest = hashlib.sha256()
        leaves = [
            *tree.flatten_with_path(self.trajectory._asdict()),
            (("contexts",), self.contexts),
            *((("info", name), self.info[name]) for name in sorted(self.info)),
        ]
        for path, leaf in leaves:
            array = np.ascontiguousarray(leaf)
            digest.update(f"{path} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


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
