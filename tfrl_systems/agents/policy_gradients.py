"""The settings, networks and functions that agents with an actor network share."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from environments.errors import UserError
from tfrl_systems.networks import actors, adam, graph_actors, graph_encoder, graph_heads, mixture

NETWORKS: tuple[type[actors.Actor], ...] = (
    graph_actors.GraphActorNetwork,
    actors.ActorNetwork,
)
"""The actor networks; an agent has the first that suits its environment's specs."""

# Shares of the training after which the standard deviation has fallen to `search_action_std`, falls
# further, and has reached `final_action_std`.
_SEARCH_BEGINS, _SEARCH_ENDS, _LAST_STD_BEGINS = 0.1, 0.7, 0.9


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Settings of an actor network and of its learning rate.

    The defaults suit no system in particular. The settings that suit a system are in its record
    (`systems/`).

    Attributes:
      hidden_sizes: units of the hidden layers, in the actor and in the value network.
      activation: activation of the hidden layers: "tanh" or "relu".
      graph_width: for graph observations: numbers in the vector of a node.
      graph_rounds: for graph observations: rounds of message passing; a node sees as many edges
        far.
      graph_block: for graph observations: what a round is. "two_way" sends messages along the edges
        and against them; "full" is the full GN block of the thesis (Algorithm 2).
      head: for graph observations: "local" scores each match of a rule from the rule and from what
        is near the nodes that the match touches, so that what it learns holds for other models;
        "pointer" uses the whole graph too; "hierarchical" chooses first the rule, then the
        location, both by their numbers, and takes the place of "local" without masks.
      max_logit: for graph observations and heads other than "hierarchical": logits of matches stay
        between this number and its negative, so that a policy that learned on some models is not
        too certain on others; 0 for no bound.
      learning_rate: Adam's learning rate at the start.
      final_learning_rate: Adam's learning rate at the end. In between it falls by equal factors.
      warm_start: directory of a policy to begin with, whose network is of the same sizes; "" to
        begin anew.
      seed: decides the initial weights.
    """

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    graph_width: int = 32
    graph_rounds: int = 5
    graph_block: str = dataclasses.field(default="two_way", metadata={"is_later": True})
    head: str = "local"
    max_logit: float = 0.0
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    warm_start: str = ""
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Config(NetworkConfig):
    """Settings that policy gradient agents share, beside those of their networks.

    Attributes:
      group: how often the policy plays each context. From 2 on, episodes are compared with the
        others of their context, and no value network learns: an action's advantage is what its
        episode has more than the mean of the others, of what the action answers for
        (`environments.credit`). With 1, the value network is the baseline.
      clip_advantages: with groups: advantages are cut off at this many times the median of those
        that are not 0; 0 for never. Where the worth of actions has a long tail, few steps would
        decide all updates.
      gamma: discount of later rewards. At 0 an action answers only for its own reward. At 1 it
        answers for all later rewards too, which suits rewards that come at the end.
      entropy_regularization: weight of the policy's entropy in the objective.
      value_weight: weight of the value network's loss.
      gradient_clipping: greatest norm of a gradient; 0 for no limit.
      action_std: standard deviation of float actions at the start, as a share of half their range.
      search_action_std: standard deviation from a tenth to seven tenths of the training, in the
        same unit. It averages out narrower valleys, so it decides which minimum is found. A learned
        one would shrink in the first valley.
      final_action_std: standard deviation in the last tenth of the training, in the same unit.
        Between these phases it falls by equal factors.
      state_dependent_std: whether the policy learns where to keep a greater standard deviation, up
        to e times as great. Without it the entropy is the same everywhere, and samplers that ask
        where the policy is unsure learn nothing from it.
    """

    group: int = dataclasses.field(default=1, metadata={"is_later": True})
    clip_advantages: float = dataclasses.field(default=0.0, metadata={"is_later": True})
    gamma: float = 0.99
    entropy_regularization: float = 0.0
    value_weight: float = 0.5
    gradient_clipping: float = 0.5
    action_std: float = 0.5
    search_action_std: float = 0.3
    final_action_std: float = 0.1
    state_dependent_std: bool = False


def make_parts(
    config: Config,
    time_step_spec: ts.TimeStep,
    action_spec: Any,
    has_spread: bool = False,
    two_policies: bool = False,
    components: int = 1,
) -> tuple[Any, Any, adam.Adam]:
    """Make networks and optimizer; only the configuration's seed decides the initial weights.

    Args:
      config: settings of the agent.
      time_step_spec: time step spec of the environment.
      action_spec: action spec of the environment.
      has_spread: whether the value network learns how far returns lie from their mean, too.
      two_policies: whether it has a value for each of two policies; see `ppo.TwoPolicyAgent`.
      components: how many answers the policy has; see `networks.mixture`.

    Returns:
      The actor network and the value network, from `graph_actors` if observations are graphs with a
      list of actions, else from `actors`; and the optimizer of both.
    """
    std = config.action_std, config.state_dependent_std
    actor = make_actor(config, time_step_spec, action_spec, *std, components)
    _, generator = _generators(config)
    value = actor.make_value(config, generator, has_spread, two_policies)
    value.create_variables()
    variables = [*actor.trainable_variables, *value.trainable_variables]
    return actor, value, adam.Adam(config.learning_rate, variables, config.gradient_clipping)


def make_actor(
    config: NetworkConfig,
    time_step_spec: ts.TimeStep,
    action_spec: Any,
    action_std: float = Config.action_std,
    state_dependent_std: bool = False,
    components: int = 1,
) -> Any:
    """Make the actor network of `make_parts`, for agents that need nothing else."""
    generator, _ = _generators(config)
    specs: tuple[Any, Any] = tensor_spec.from_spec((time_step_spec.observation, action_spec))
    if components > 1:
        actor = mixture.MixtureNetwork(*specs, config, generator, state_dependent_std, components)
    else:
        suiting = next(network_type for network_type in NETWORKS if network_type.suits(*specs))
        actor = suiting(*specs, config, generator, state_dependent_std)
    actor.create_variables()
    actor.set_std(action_std)
    return actor


def _generators(config: NetworkConfig) -> list[np.random.Generator]:
    """Return what draws the weights of the actor, and those of the value network."""
    return [np.random.default_rng(seed) for seed in np.random.SeedSequence(config.seed).spawn(2)]


def set_progress(config: Config, optimizer: adam.Adam, actor: Any, progress: float) -> None:
    """Set learning rate and standard deviation (see `Config`); `progress` goes from 0 to 1."""
    rates = config.learning_rate, config.final_learning_rate
    optimizer.set_learning_rate(falling(*rates, progress))
    if progress < _SEARCH_ENDS:
        std = falling(config.action_std, config.search_action_std, progress / _SEARCH_BEGINS)
    else:
        share = (progress - _SEARCH_ENDS) / (_LAST_STD_BEGINS - _SEARCH_ENDS)
        std = falling(config.search_action_std, config.final_action_std, share)
    actor.set_std(std)
    actor.set_even_share(max(1 - progress / _SEARCH_ENDS, 0.0))


def falling(start: float, end: float, progress: float) -> float:
    """Return where a fall from `start` to `end` by equal factors is at `progress`, 0 to 1."""
    return start * (end / start) ** min(max(progress, 0.0), 1.0)


def with_boundary(experience: trajectory.Trajectory) -> trajectory.Trajectory:
    """Return experience [B, T] with a boundary step added at the end, [B, T + 1].

    TF-Agents' PPO takes the last time step for the state after the last action, and learns nothing
    from the action in it.
    """
    last = tree.map_structure(lambda array: array[:, -1:], experience)
    boundary = last._replace(
        step_type=tf.fill(tf.shape(last.step_type), ts.StepType.LAST),
        next_step_type=tf.fill(tf.shape(last.next_step_type), ts.StepType.FIRST),
        reward=tf.zeros_like(last.reward),
        discount=tf.ones_like(last.discount),
    )
    return tree.map_structure(lambda *arrays: tf.concat(arrays, axis=1), experience, boundary)


def taken_steps(experience: trajectory.Trajectory, *columns: Any) -> Any:
    """Return the N steps of [B, T] in which an action was taken, without boundary steps, as [1, N].

    Padding consists of boundary steps. So nothing that is computed from the result depends on the
    amount of padding: neither means and variances nor the normalisers. If there are further columns
    [B, T], the result is a tuple of the experience and the same steps of each column.
    """
    is_taken = tf.reshape(tf.not_equal(experience.step_type, ts.StepType.LAST), [-1])
    places = tf.where(is_taken)[:, 0]

    def take(array: tf.Tensor) -> tf.Tensor:
        steps = tf.reshape(array, [-1, *array.shape[2:]])
        return tf.gather(steps, places)[tf.newaxis]

    packed = tree.map_structure(take, experience)
    return (packed, *map(take, columns)) if columns else packed


def advantages_of_groups(config: Config, experience: trajectory.Trajectory) -> tf.Tensor:
    """Return the advantages [B, T] that `drivers.group_runner` wrote, cut off as `config` says."""
    advantages = experience.policy_info["advantage"]
    if not config.clip_advantages:
        return advantages
    sizes = tf.sort(tf.abs(tf.boolean_mask(advantages, tf.not_equal(advantages, 0))))
    middle = tf.maximum(tf.shape(sizes)[0] - 1, 0) // 2
    # The slice is empty, and its sum 0, where all advantages are 0.
    bound = config.clip_advantages * tf.reduce_sum(sizes[middle : middle + 1])
    return tf.clip_by_value(advantages, -bound, bound)


def normalised(advantages: tf.Tensor) -> tf.Tensor:
    """Bring advantages [1, N], without padding, to mean 0 and variance 1."""
    # With padding in the sums, their last bits would depend on where it is.
    advantages -= tf.reduce_mean(advantages)
    return advantages * tf.math.rsqrt(tf.reduce_mean(advantages**2) + 1e-8)


def at_least(config: NetworkConfig, least: float, *names: str) -> dict[str, bool]:
    """Return for some settings whether they are at least so great, as `check` takes it."""
    return {name: getattr(config, name) >= least for name in names}


def positive(config: NetworkConfig, *names: str) -> dict[str, bool]:
    """Return for some settings whether they are above 0, as `check` takes it."""
    return {name: getattr(config, name) > 0 for name in names}


def _held(config: NetworkConfig, *names: str) -> list[str]:
    """Return those of the settings that agents share which this one has."""
    return [name for name in names if hasattr(config, name)]


def check(name: str, config: NetworkConfig, ranges: dict[str, bool]) -> None:
    """Raise a UserError that names the first setting that is out of its range.

    `name` is that of the agent's module. For each of the agent's own settings, `ranges` says
    whether it is within its range.
    """
    shared = {
        "hidden_sizes": all(size >= 1 for size in config.hidden_sizes),
        "activation": config.activation in actors.ACTIVATIONS,
        "graph_block": config.graph_block in graph_encoder.BLOCKS,
        "head": config.head in graph_heads.HEADS,
        "gamma": 0 <= getattr(config, "gamma", 0) <= 1,
        **at_least(config, 1, *_held(config, "graph_width", "graph_rounds", "group")),
        **at_least(
            config,
            0,
            *_held(config, "max_logit", "clip_advantages", "entropy_regularization"),
            *_held(config, "gradient_clipping", "value_weight", "seed"),
        ),
        **positive(
            config,
            *_held(config, "learning_rate", "final_learning_rate"),
            *_held(config, "action_std", "search_action_std", "final_action_std"),
        ),
    }
    for setting, holds in (shared | ranges).items():
        if not holds:
            raise UserError(
                f"{name}: expected {setting} within its range, found "
                f"{getattr(config, setting)!r}; see agents.{name}.Config"
            )
