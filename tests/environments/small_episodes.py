"""A short episode of each system, to be recorded and played again.

`golden/` holds them as files. If an environment changes on purpose, so that they differ, write them
anew: python -c "from tests.environments import small_episodes as s; s.write_golden()"
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any

import numpy as np

from environments.recording import Recorder
from tests.environments.inlining import small_modules
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls

GOLDEN = pathlib.Path(__file__).parent / "golden"
CONTEXTS = {
    "inlining": "small/hand.c",
    "learn_to_optimize": "0.5 -0.25 0.125",
    "tensor_graphs": "transformers:7",
}
SYSTEMS = tuple(CONTEXTS)


def write_corpus(directory: pathlib.Path) -> pathlib.Path:
    """A corpus of two modules, which the golden episode of inlining began in."""
    modules = {"small/hand.c": HAND_WORKED, "small/many.c": many_calls(4)}
    return small_modules.write_corpus(directory, modules)


def settings_of(system: str, corpus: pathlib.Path) -> dict[str, Any]:
    return {
        "inlining": {"corpus": corpus},
        "learn_to_optimize": {
            "function": "rotated_ackley", "dimensions": 3, "free": 1, "episode_length": 4,
        },
        "tensor_graphs": {"models": ["transformers:7"], "objective": "analytic", "max_steps": 5},
    }[system]  # fmt: skip


def choose(recorder: Recorder, observation: Any, generator: np.random.Generator) -> Any:
    """An action by chance among those that are allowed."""
    if not recorder.num_actions:
        size = recorder.action_spec().shape
        return (2 * generator.random(size) - 1).astype(np.float32)
    mask = observation["mask"] if recorder.is_masked else np.ones(recorder.num_actions)
    allowed = np.flatnonzero(mask)
    return allowed[int(generator.random() * len(allowed))]


def play(system: str, corpus: pathlib.Path, num_steps: int = 100, seed: int = 0) -> Recorder:
    """A recorder with an episode, up to its end or a number of steps; to be closed."""
    recorder = Recorder(system, **settings_of(system, corpus))
    generator = np.random.default_rng(seed)
    time_step = recorder.reset_at(CONTEXTS[system])
    for _ in range(num_steps):
        if time_step.is_last():
            break
        time_step = recorder.step(choose(recorder, time_step.observation, generator))
    return recorder


def write_golden() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        corpus = write_corpus(pathlib.Path(scratch) / "corpus")
        for system in SYSTEMS:
            path = GOLDEN / f"{system}.json"
            with contextlib.closing(play(system, corpus)) as recorder:
                recorder.save_trajectory(path, author="golden")
            path.write_text(path.read_text().replace(str(corpus), "runs/small"))
