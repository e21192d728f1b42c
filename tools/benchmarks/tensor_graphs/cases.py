"""The models and the training runs of the experiments of `tensor_graph_tables.py`."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from environments.errors import UserError
from environments.tensor_graphs.rewards import SYMBOLS

# The models of the thesis (Table 4.1) and three more, in pairs of one kind of network. One policy
# for several models is trained on the first of each pair and used on the second. RepVGG's branches
# and LoRA's adapters are unlike any other model, so those two form a pair.
MODELS = (
    "bert-tiny",
    "bert-base",
    "resnet-18",
    "resnet-50",
    "repvgg-a0",
    "lora-transformer",
    "inception-v3",
    "squeezenet-1.1",
)
AGENTS = ("ppo", "reinforce")
SEARCHES = ("greedy", "taso", "regions")
CHANCE = "chance"
"""A policy that has learned nothing."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
      agent: "ppo" or "reinforce".
      models: names of the models that the policy is trained on; one or several.
      seed: seed of everything random.
      reward: the thesis's symbol of the reward (R1 … R5); "" for the reward of the settings.
    """

    agent: str
    models: tuple[str, ...]
    seed: int
    reward: str = ""

    @property
    def name(self) -> str:
        """Name of the run's directory."""
        models = slug(self.models[0]) if len(self.models) == 1 else "several"
        parts = [self.agent, models, self.reward, f"seed-{self.seed}"]
        return "-".join(part for part in parts if part)


def slug(model: str) -> str:
    """Return a model's name for use in file names; a path is reduced to its last part."""
    name = model.removesuffix(".onnx")
    return re.sub(r"[^A-Za-z0-9.]+", "-", pathlib.PurePath(name).name)


def check_models(models: Sequence[str]) -> None:
    """Check that records of the models have different file names.

    Raises:
      UserError: two models have the same name.
    """
    slugs = [slug(model) for model in models]
    for number, name in enumerate(slugs):
        if name in slugs[:number]:
            raise UserError(
                f"--models: expected models of different names, found two named {name}; rename one"
            )


def halves(models: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split models into those that one policy is trained on, and those that it never sees."""
    return tuple(models[::2]), tuple(models[1::2])


def usual_reward(reward: str) -> str:
    """Return the thesis's symbol of the settings' reward, or its name if it has no symbol."""
    return "R5" if reward == "runtime" else reward


@dataclasses.dataclass(frozen=True)
class Plan:
    """The training runs of one seed.

    Attributes:
      own: one run for each model and agent.
      rewards: runs of the first agent on the first model, one with each reward but that of the
        settings.
      general: run of the first agent on half of the models; None if there is no other half.
    """

    own: tuple[Run, ...]
    rewards: tuple[Run, ...]
    general: Run | None

    @classmethod
    def of(cls, models: Sequence[str], agents: Sequence[str], seed: int, usual: str) -> Plan:
        """Plan all runs that the tables need; `usual` is what `usual_reward` returns."""
        trained, unseen = halves(models)
        return cls(
            tuple(Run(agent, (model,), seed) for model in models for agent in agents),
            tuple(Run(agents[0], (models[0],), seed, one) for one in SYMBOLS if one != usual),
            Run(agents[0], trained, seed) if unseen else None,
        )

    @property
    def runs(self) -> list[Run]:
        """All runs, each once; of two models, one half is a single model, whose run is in `own`."""
        general = [] if self.general is None else [self.general]
        return list(dict.fromkeys([*self.own, *self.rewards, *general]))
