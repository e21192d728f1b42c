"""The settings of PPO."""

from __future__ import annotations

import dataclasses

from tfrl_systems.agents import policy_gradients


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.Config):
    """Settings of a PPO agent, beside those that policy gradient agents share.

    Attributes:
      num_epochs: how many times the agent learns from the experience of an iteration.
      minibatch_size: steps of experience that one step of Adam sees, drawn without replacement; 0
        for all. With graphs it bounds the memory: one of a thousand nodes takes about 10 MB.
      clip: how far the ratio of new to old probability may leave 1 before its gradient is cut off.
      gae_lambda: from 0 (advantages rely on the value network) to 1 (they rely on the returns).
      relative_advantages: whether advantages are divided by their usual size at the observation,
        which the value network learns beside the value. For some c an action can change orders of
        magnitude less than for others, and noise can be stronger; the division lets the policy
        learn all c alike.
      normalize_observations: whether float observations are brought to mean 0 and variance 1 by
        running statistics, which are part of the policy. Integers and graphs are never normalised,
        nor what several components see.
      normalize_rewards: whether rewards are divided by their running standard deviation.
      components: for float actions: how many answers the policy has for each observation, of which
        it takes the one that it expects most from (`networks.mixture`). Where the best answer jumps
        from one basin to another, several find it, whatever the seed.
      two_policies: for graph observations: whether rule and location are chosen by two policies,
        whose ratios are clipped each by itself, and which have a value function each, as in the
        thesis (3.3). If not, the pair is one action.
    """

    num_epochs: int = 10
    minibatch_size: int = 0
    clip: float = 0.2
    gae_lambda: float = 0.95
    relative_advantages: bool = False
    normalize_observations: bool = False
    normalize_rewards: bool = True
    components: int = dataclasses.field(default=1, metadata={"is_later": True})
    two_policies: bool = dataclasses.field(default=False, metadata={"is_later": True})


def ranges(config: Config) -> dict[str, bool]:
    """Return for each of PPO's own settings whether it is within its range."""
    return {
        "num_epochs": config.num_epochs >= 1,
        "minibatch_size": config.minibatch_size >= 0,
        "clip": config.clip > 0,
        "gae_lambda": 0 <= config.gae_lambda <= 1,
        # What follows needs a value network that learns.
        "relative_advantages": config.group == 1 or not config.relative_advantages,
        "components": config.components == 1 or (config.components > 1 and config.group == 1),
        "two_policies": (config.group == 1 and config.components == 1) or not config.two_policies,
    }
