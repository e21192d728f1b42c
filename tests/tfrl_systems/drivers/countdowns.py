"""The smallest environment with episodes of different lengths, alone and in a batch; an actor."""

from __future__ import annotations

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

# Lengths of the episodes, one after another; with a batch, of the rows as they begin one.
LENGTHS = (2, 1, 3, 1, 2)


class Countdown(py_environment.PyEnvironment):
    """Counts down; a step is paid its action times what is left.

    Context: how many steps there are, which the next of `LENGTHS` says, from the first one again
      when the environment is seeded; and the seed.

    Observation: "left", int64 [], the steps that are left; "noise", float32 [2].
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(handle_auto_reset=True)
        self.is_closed = False
        self._info: dict[str, object] = {}
        self.seed(seed)

    def seed(self, seed: int, num_begun: int = 0) -> None:
        self._seed, self._num_begun = seed, num_begun

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        return {
            "left": array_spec.ArraySpec((), np.int64),
            "noise": array_spec.ArraySpec((2,), np.float32),
        }

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return array_spec.BoundedArraySpec((), np.int64, 0, 9)

    def get_info(self) -> dict[str, object]:
        return dict(self._info)

    def close(self) -> None:
        self.is_closed = True

    def _reset(self) -> ts.TimeStep:
        self._length = self._left = LENGTHS[self._num_begun % len(LENGTHS)]
        self._num_begun += 1
        self._total = 0.0
        return ts.restart(self._observation())

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        reward = float(action * self._left)
        self._total += reward
        self._left -= 1
        if self._left:
            return ts.transition(self._observation(), reward, 0.5)
        self._info = {"context": f"{self._length} steps", "total": self._total}
        return ts.termination(self._observation(), reward)

    def _observation(self) -> dict[str, np.ndarray]:
        noise = np.array([self._seed % 97, self._left / 3], np.float32)
        return {"left": np.asarray(self._left, np.int64), "noise": noise}


class Countdowns(py_environment.PyEnvironment):
    """As many of them side by side, begun in the order of the rows; ended rows begin again."""

    def __init__(self, batch_size: int, seed: int = 0) -> None:
        super().__init__(handle_auto_reset=False)
        self._rows = [Countdown() for _ in range(batch_size)]
        self.seed(seed)

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return len(self._rows)

    def seed(self, seed: int) -> None:
        for number, row in enumerate(self._rows):
            row.seed(seed, number)

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        return self._rows[0].observation_spec()

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return self._rows[0].action_spec()

    def get_info(self) -> dict[str, np.ndarray]:
        """Of rows that have not ended an episode: 0 and no name."""
        infos = [row.get_info() for row in self._rows]
        contexts = [info.get("context", "") for info in infos]
        return {
            "context": np.array(contexts),
            "total": np.array([info.get("total", 0.0) for info in infos]),
        }

    def _reset(self) -> ts.TimeStep:
        return _side_by_side([row.reset() for row in self._rows])

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        return _side_by_side(
            [row.step(row_action) for row, row_action in zip(self._rows, action, strict=True)]
        )


def _side_by_side(steps: list[ts.TimeStep]) -> ts.TimeStep:
    observation = {
        key: np.stack([step.observation[key] for step in steps]) for key in ("left", "noise")
    }
    rest = [np.stack([step[field] for step in steps]) for field in range(3)]
    return ts.TimeStep(*rest, observation)


class Parity:
    """Does 1 where an odd number of steps is left, plus what was loaded; or chance decides.

    Attributes:
      batch_sizes: of the calls of `act`.
    """

    def __init__(self, is_random: bool = False) -> None:
        self._is_random = is_random
        self._shift = 0
        self.batch_sizes: list[int] = []

    def load(self, data: bytes) -> int:
        self._shift = int(data)
        return 1

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        left = time_step.observation["left"]
        self.batch_sizes.append(len(left))
        action = generator.integers(0, 10, len(left)) if self._is_random else left % 2
        info = {"dist_params": {"logits": np.full((len(left), 2), -0.5, np.float32)}}
        return policy_step.PolicyStep(action + self._shift, (), info)
