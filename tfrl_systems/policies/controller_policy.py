"""The policy of a controller: an actor that sees a latent and a memory, not the observation.

    observation ─▶ latent z ─┬─▶ actor ─▶ action a ─┐
                   memory h ─┘                      ├─▶ memory h'
                   └────────── z, h, a ─────────────┘

What is allowed comes from the observation itself. The actor can therefore be trained wherever
latents, memories and permits come from, such as in a world model's dreams (D. Ha, J. Schmidhuber:
World Models, 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.agents.ppo import ppo_utils
from tf_agents.distributions import utils as distribution_utils
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from tfrl_systems.networks import actors
from tfrl_systems.networks.controller import (
    LATENT,
    GraphLatents,
    Memory,
    State,
    VectorLatents,
    seen_by_actor,
)
from tfrl_systems.networks.inputs import Permits


def distribution_parameters(distribution: Any) -> Any:
    """Return the parameters of a distribution as PPO needs them, tensors by name."""
    return ppo_utils.get_distribution_params(distribution, legacy_distribution_network=False)


class Parts(NamedTuple):
    """What a controller decides with.

    Attributes:
      latents: makes latents from observations.
      memory: remembers the episode.
      actor: chooses actions from both.
      allowed: how observations say what is allowed.
      by_chance: whether all allowed actions are equally likely, whatever the actor says.
    """

    latents: VectorLatents | GraphLatents
    memory: Memory
    actor: actors.ActorNetwork
    allowed: Permits
    by_chance: tf.Variable


class ControllerPolicy(tf_policy.TFPolicy):
    """The policy; its state is the memory. A greedy one ignores `by_chance`."""

    def __init__(
        self, time_step_spec: ts.TimeStep, action_spec: Any, parts: Parts, is_greedy: bool
    ) -> None:
        self.parts = parts
        self._is_greedy = is_greedy
        size = parts.memory.size
        state = {name: tf.TensorSpec([size], tf.float32, name) for name in State._fields}
        info: Any = ()
        if not is_greedy:
            spec = parts.actor.create_variables()
            info = {
                "dist_params": distribution_utils.parameters_to_dict(
                    spec.parameters, tensors_only=True
                )
            }
        super().__init__(
            time_step_spec, action_spec, policy_state_spec=state, info_spec=info, clip=False
        )

    def _variables(self) -> list[tf.Variable]:
        modules = self.parts.latents, self.parts.memory, self.parts.actor
        return [*(part for module in modules for part in module.variables), self.parts.by_chance]

    def _observed(self, time_step: ts.TimeStep, policy_state: Any) -> dict[str, tf.Tensor]:
        parts = self.parts
        latents = parts.latents(parts.latents.select(time_step.observation))
        allowed = parts.allowed.of(time_step.observation)
        return seen_by_actor(latents, policy_state["hidden"], allowed, parts.allowed.name)

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> policy_step.PolicyStep:
        """Return the distribution; the memory stays, because no action was taken yet."""
        distribution, _ = self.parts.actor(self._observed(time_step, policy_state))
        return policy_step.PolicyStep(distribution, policy_state)

    def _action(
        self, time_step: ts.TimeStep, policy_state: Any, seed: Any = None
    ) -> policy_step.PolicyStep:
        parts = self.parts
        observed = self._observed(time_step, policy_state)
        distribution, _ = parts.actor(observed)
        action = distribution.mode() if self._is_greedy else distribution.sample(seed=seed)
        action = tf.cast(action, self._action_spec.dtype)
        following = parts.memory(
            parts.memory.inputs(observed[LATENT], action), State(**policy_state)
        )
        info: Any = ()
        if self._info_spec:
            info = {"dist_params": distribution_parameters(distribution)}
        return policy_step.PolicyStep(action, following._asdict(), info)

    def describe(self) -> dict[str, Any]:
        """Return what `policies.numpy_controller` needs beside the variables, as JSON values."""
        parts = self.parts
        actor = parts.actor.describe()
        return {
            "kind": "controller",
            "actions": actor["actions"],
            "memory_size": parts.memory.size,
            "latents": parts.latents.describe(),
            "permits": parts.allowed.name,
            "actor": actor,
        }

    def named_variables(self) -> Mapping[str, tf.Variable]:
        """Return the variables by their place: "encoder/…", "memory/…", "actor/…", "by_chance"."""
        named = dict(self.parts.latents.named_variables())
        for place, part in (("memory", self.parts.memory), ("actor", self.parts.actor)):
            for name, variable in part.named_variables().items():
                named[f"{place}/{name}"] = variable
        return named if self._is_greedy else {**named, "by_chance": self.parts.by_chance}
