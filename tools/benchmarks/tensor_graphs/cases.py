"""What `tensor_graph_tables.py` makes its experiments on, and which training runs they need."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from environments.errors import UserError
from environments.tensor_graphs.rewards import SYMBOLS

# Those of the thesis (Table 4.1), and three that it has not, in pairs. The first of each pair is in
# the half that one policy for several models is trained on, so that of each kind of network there
# is one in either half; RepVGG's branches and LoRA's adapters have no like, and are a pair.
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
      models: one, or several that one policy is trained on.
      seed: of everything.
      reward: symbol of the thesis (R1 … R5); "" for the one of the settings.
    """

    agent: str
    models: tuple[str, ...]
    seed: int
    reward: str = ""

    @property
    def name(self) -> str:
        """Of its directory."""
        models = slug(self.models[0]) if len(self.models) == 1 else "several"
        parts = [self.agent, models, self.reward, f"seed-{self.seed}"]
        return "-".join(part for part in parts if part)


def slug(model: str) -> str:
    """For names of files: of a model that is a file, the file's name."""
    name = model.removesuffix(".onnx")
    return re.sub(r"[^A-Za-z0-9.]+", "-", pathlib.PurePath(name).name)


def check_models(models: Sequence[str]) -> None:
    """Finds out whether records of the models can be told apart.

    Raises:
      UserError: two have the same name.
    """
    slugs = [slug(model) for model in models]
    for number, name in enumerate(slugs):
        if name in slugs[:number]:
            raise UserError(
                f"--models: expected models of different names, found two named {name}; rename one"
            )


def halves(models: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Models that one policy is trained on, and models that it is used on without training."""
    return tuple(models[::2]), tuple(models[1::2])


def usual_reward(reward: str) -> str:
    """The symbol of the reward of the settings, which the other runs have; its name without."""
    return "R5" if reward == "runtime" else reward


@dataclasses.dataclass(frozen=True)
class Plan:
    """The training runs of one seed.

    Attributes:
      own: one for each model and agent.
      rewards: of the first agent on the first model, with each reward but that of the settings.
      general: of the first agent, on half of the models; None where there is no other half.
    """

    own: tuple[Run, ...]
    rewards: tuple[Run, ...]
    general: Run | None

    @classmethod
    def of(cls, models: Sequence[str], agents: Sequence[str], seed: int, usual: str) -> Plan:
        """All runs that the tables need; `usual` is as `usual_reward` has it."""
        trained, unseen = halves(models)
        return cls(
            tuple(Run(agent, (model,), seed) for model in models for agent in agents),
            tuple(Run(agents[0], (models[0],), seed, one) for one in SYMBOLS if one != usual),
            Run(agents[0], trained, seed) if unseen else None,
        )

    @property
    def runs(self) -> list[Run]:
        """Each once: half of two models is one of them."""
        general = [] if self.general is None else [self.general]
        return list(dict.fromkeys([*self.own, *self.rewards, *general]))
