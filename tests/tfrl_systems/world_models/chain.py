"""A chain of five states that is known exactly, for world models to learn.

    0 ── 1 ── 2 ── 3 ── 4 ── the end

RIGHT costs 1, LEFT costs nothing, and JUMP leads from 4 to the end and pays 10. From 0 the best is
to walk right four times, and to jump: 10 - 4 = 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.episodes import split_episodes

LEFT, RIGHT, JUMP = range(3)
NUM_STATES, BEST_RETURN = 5, 6.0


def step(state: int, action: int) -> tuple[int, float]:
    if action == JUMP:
        return 0, 10.0
    return (state + 1, -1.0) if action == RIGHT else (state - 1, 0.0)


def allowed(state: int) -> np.ndarray:
    return np.array((state > 0, state < NUM_STATES - 1, state == NUM_STATES - 1))


class Chain(py_environment.PyEnvironment):
    """The chain; episodes begin at a random state, or always at `first`."""

    def __init__(self, seed: int = 0, first: int | None = None) -> None:
        super().__init__(handle_auto_reset=True)
        self._first = first
        self.seed(seed)

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        return {
            "state": array_spec.BoundedArraySpec((NUM_STATES,), np.float32, 0, 1, "state"),
            "action_mask": array_spec.ArraySpec((3,), np.bool_, "action_mask"),
        }

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return array_spec.BoundedArraySpec((), np.int32, 0, 2, "action")

    def seed(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._current_time_step = None

    def get_info(self) -> dict[str, Any]:
        return {"context": "chain"}

    def _observation(self) -> dict[str, np.ndarray]:
        state = np.eye(NUM_STATES, dtype=np.float32)[self._state]
        return {"state": state, "action_mask": allowed(self._state)}

    def _reset(self) -> ts.TimeStep:
        drawn = int(self._generator.integers(NUM_STATES))
        self._state = drawn if self._first is None else self._first
        return ts.restart(self._observation())

    def _step(self, action: Any) -> ts.TimeStep:
        assert allowed(self._state)[action], "a masked action was taken"
        self._state, reward = step(self._state, int(action))
        if action == JUMP:
            return ts.termination(self._observation(), reward)
        return ts.transition(self._observation(), reward)


def played_by_chance(
    num_episodes: int, seed: int, first: int | None = None, max_steps: int = 1000
) -> trajectory.Trajectory:
    """Episodes [B, T] of random allowed actions; longer ones are left out."""
    environment, generator = Chain(seed, first), np.random.default_rng(seed)
    rows, lengths = [], []
    while len(lengths) < num_episodes:
        now, episode = environment.reset(), []
        while not now.is_last():
            action = generator.choice(np.flatnonzero(now.observation["action_mask"]))
            after = environment.step(np.int32(action))
            episode.append((now, action, after))
            now = after
        if len(episode) <= max_steps:
            rows += episode
            lengths.append(len(episode))
    nows, actions, afters = zip(*rows, strict=True)
    names = ("state", "action_mask")
    steps = trajectory.Trajectory(
        np.array([now.step_type for now in nows], np.int32),
        {name: np.array([now.observation[name] for now in nows]) for name in names},
        np.array(actions, np.int32),
        (),
        np.array([after.step_type for after in afters], np.int32),
        np.array([after.reward for after in afters], np.float32),
        np.array([after.discount for after in afters], np.float32),
    )
    return split_episodes(steps, lengths)
