"""Episodes, and the experience that agents are trained on.

Only this module decides how episodes of different lengths share one [B, T] Trajectory. The padding
consists of boundary steps (LAST, then FIRST), which TF-Agents puts between two episodes. Code that
skips boundaries therefore skips padding too.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory


def split_episodes(steps: trajectory.Trajectory, lengths: Sequence[int]) -> trajectory.Trajectory:
    """Split consecutive episodes into rows of equal length.

    Shorter episodes are padded with boundary steps: step type LAST, next step type FIRST, reward 0,
    discount 1. Observation, action and policy info repeat the episode's last step, so values stay
    in their ranges and log-probabilities stay finite.

    Args:
      steps: arrays [N, ...], one episode after another.
      lengths: the number of steps of each of the B episodes, at least 1; their sum is N.

    Returns:
      Arrays [B, T, ...], where T is the greatest length.
    """
    num_rows, length = len(lengths), max(lengths)
    if num_rows * length == len(steps.step_type):
        return tree.map_structure(
            lambda array: array.reshape(num_rows, length, *array.shape[1:]), steps
        )
    num_steps = np.array(lengths)
    return _rows_of(steps, np.cumsum(num_steps) - num_steps, num_steps, length)


def end_episodes(steps: trajectory.Trajectory, lengths: np.ndarray) -> trajectory.Trajectory:
    """Keep the first episode of each row, and replace all later steps by boundary steps.

    Args:
      steps: arrays [B, T, ...]; each row begins with an episode.
      lengths: int [B], the number of steps of each row's first episode, from 1 to T.

    Returns:
      Arrays [B, T', ...], where T' is the greatest length.
    """
    return _pad(steps, int(lengths.max()), lengths)


def _pad(
    steps: trajectory.Trajectory, length: int, lengths: np.ndarray | None = None
) -> trajectory.Trajectory:
    """Pad rows to `length` steps; each keeps its first `lengths` steps, or all if that is None."""
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
    """Cut steps into rows, and pad the rows with boundary steps.

    Args:
      steps: arrays [N, ...].
      starts: int [B], the position of each row's first step among the N.
      lengths: int [B], the number of steps of each row.
      length: T.

    Returns:
      Arrays [B, T, ...].
    """
    number = np.arange(length)
    is_padding = number >= lengths[:, np.newaxis]
    rows = starts[:, np.newaxis] + np.minimum(number, lengths[:, np.newaxis] - 1)

    def repeat_last(array: np.ndarray) -> np.ndarray:
        return array[rows]

    def fill(array: np.ndarray, value: float) -> np.ndarray:
        filled = array[rows]
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


class Collected(Protocol):
    """What a pool collects in an iteration, and an agent learns from."""

    @property
    def num_episodes(self) -> int:
        """Return the number of episodes that were played."""

    @property
    def num_steps(self) -> int:
        """Return the number of steps in which an action was taken."""

    @property
    def mean_return(self) -> float:
        """Return the mean over episodes of the undiscounted sum of rewards."""

    @property
    def messages(self) -> Sequence[str]:
        """Return what failed in it, for people to read."""

    @property
    def evaluations(self) -> int:
        """Return how often the system's own function was evaluated for it."""

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> Any:
        """Join parts, in their order."""

    def sha256(self) -> str:
        """Return a hash of all numbers."""


@dataclasses.dataclass(frozen=True)
class Experience:
    """The collected episodes that an agent is trained on, side by side.

    Attributes:
      trajectory: TF-Agents Trajectory of arrays [B, T, ...]; episodes shorter than T are padded as
        by `split_episodes`.
      contexts: the context of each episode: names [B], or points float64 [B, n].
      info: numbers [B] about the episodes, such as costs, by name; names contain the units.
      evaluations: how often the system's own function was evaluated, if it has one.
    """

    trajectory: trajectory.Trajectory
    contexts: np.ndarray
    info: Mapping[str, np.ndarray]
    evaluations: int = 0
    messages = ()

    @classmethod
    def of(
        cls,
        steps: trajectory.Trajectory,
        contexts: Sequence[str],
        infos: Sequence[Mapping[str, Any]],
    ) -> Experience:
        """Make experience from steps [B, T, ...], and each episode's context and info.

        The steps are padded as by `split_episodes`, and all infos have the same names.
        """
        info = {name: np.array([episode_info[name] for episode_info in infos]) for name in infos[0]}
        return cls(steps, np.array(contexts), info)

    @classmethod
    def concatenate(cls, parts: Sequence[Experience]) -> Experience:
        """Join the episodes of all parts, in their order.

        The names of their infos are the same. T may differ, and the result has the greatest.

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
            sum(part.evaluations for part in parts),
        )

    def with_usual_length(self) -> Experience:
        """Pad to the next power of two of T, because TensorFlow traces a graph for each length."""
        length = self.trajectory.step_type.shape[1]
        usual = 1 << (length - 1).bit_length()
        return dataclasses.replace(self, trajectory=_pad(self.trajectory, usual))

    @property
    def num_episodes(self) -> int:
        """Return B."""
        return len(self.trajectory.step_type)

    @property
    def num_steps(self) -> int:
        """Return the number of steps in which an action was taken; padding does not count."""
        return int(np.count_nonzero(self.trajectory.step_type != ts.StepType.LAST))

    @property
    def mean_return(self) -> float:
        """Return the mean over episodes of the undiscounted sum of rewards."""
        return float(np.sum(self.trajectory.reward, dtype=np.float64)) / self.num_episodes

    def sha256(self) -> str:
        """Return a hash of every array's name, dtype, shape and bits."""
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
