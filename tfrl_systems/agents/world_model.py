"""Learning in a dream: a world model is fitted to real experience, and PPO learns inside it.

Each iteration of the loop brings real episodes. With those so far the agent

    1. judges the model on the new episodes, which it has not seen yet   `world_models.judging`
    2. fits the model                                                    `world_models.fitting`
    3. trains the controller with PPO in dreams                          `world_models.dream`

At first the real episodes are collected by chance, then by the controller. The thesis (Model-based
Reinforcement Learning in Computer Systems, 3.4) collects by chance alone, learns the model first,
and dreams of whole episodes with one model of 256 units and 8 Gaussians; so does
`PRESETS["thesis"]`. What it does not do as the thesis does:

- Fits draw from all real steps so far. The thesis sees each step once (3.4.1), which wastes most of
  what a few hundred episodes tell.
- The learning rate falls within each iteration, since each brings new steps; in the thesis it falls
  once, over 2,000 epochs (4.3.3).
- The controller learns in the second half of the iterations, while the model goes on learning; in
  the thesis after it.
- The temperature is 1, which changes nothing, where the thesis sweeps it (table 4.3) and then takes
  1.5; above 1 it also widens each Gaussian, see `world_models.mdn_rnn`.
- `dream_steps` is 0, as many as the longest real episode had; the thesis does not say how many.
- Dreams end where nothing is allowed, because a controller must choose something.
- What a system sets stays: of graphs the reward and three rounds of two-way messages. Nearer to the
  thesis are graph_block=full, graph_rounds=5 and reward=runtime beside the preset.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents import policy_gradients, ppo
from tfrl_systems.agents.sleeper import Sleeper
from tfrl_systems.networks import actors
from tfrl_systems.networks.controller import actor_spec, seen_by_actor
from tfrl_systems.policies.controller_policy import ControllerPolicy, Parts
from tfrl_systems.world_models.dream import Dream, DreamEnvironment, Remembering
from tfrl_systems.world_models.fitting import Fitter, Losses, Replay, Steps
from tfrl_systems.world_models.judging import Judge, Judgement
from tfrl_systems.world_models.mdn_rnn import WorldModel

COLLECTS = "dreams"

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "thesis": {
        "num_members": 1,
        "disagreement": 0.0,
        "dream_steps": 0,
        "dream_from_states": False,
        "two_hot_rewards": False,
        "real_share": 0.0,
        "random_share": 1.0,
        "controller_from": 0.5,
        "memory_size": 256,
        "num_waves": 0,
        "magnify": False,
    }
}
"""Values of several settings at once; single ones can be set beside them."""

_JUDGEMENT_NAME = "judgement.json"


@dataclasses.dataclass(frozen=True)
class Config(ppo.Config):
    """Settings of the agent, beside those of PPO, which trains the controller.

    Attributes:
      num_members: members of the ensemble; each step of a dream follows one of them.
      memory_size: units of each member's LSTM.
      head_size: units of each of the two layers between memory and predictions.
      num_waves: for float actions: how many wave lengths of latent and action the model sees, each
        half as long as the one before; more of them for narrower valleys, fewer for less data.
      magnify: for float actions: whether the model also sees the distance from what the controller
        would do, magnified, as it is most needed there.
      num_gaussians: components of the mixture that the next latent is drawn from.
      two_hot_rewards: whether rewards are predicted as distributions over 255 values; if not, as
        numbers.
      disagreement: how much of the standard deviation of the members' rewards is subtracted from a
        dreamed reward.
      temperature: how random dreams are; above 1 they vary more than the model believes.
      dream_steps: the most steps of a dream; 0 for as many as the longest real episode had.
      dream_from_states: whether dreams begin at any state that was met; if not, where episodes
        begin.
      num_dreams: dreams that PPO learns from at a time.
      dream_updates: how often PPO learns in each iteration, each time from new dreams.
      real_share: share of real experience, from the last iteration, in what PPO learns from.
      random_share: share of the iterations, at the start, whose actions are drawn by chance.
      controller_from: share of the iterations before the controller begins to learn.
      max_replay_steps: the most real steps to learn from; beyond them, the oldest episodes are
        forgotten.
      fit_updates: steps of Adam that fit the model in each iteration.
      fit_episodes: real episodes that each of them sees.
      fit_learning_rate: learning rate of the model at the start of each iteration, in which it
        falls to a hundredth by a polynomial of degree 2.
    """

    num_members: int = 3
    memory_size: int = 128
    head_size: int = 128
    num_waves: int = 3
    magnify: bool = True
    num_gaussians: int = 8
    two_hot_rewards: bool = True
    disagreement: float = 1.0
    temperature: float = 1.0
    dream_steps: int = 5
    dream_from_states: bool = True
    num_dreams: int = 256
    dream_updates: int = 20
    real_share: float = 0.05
    random_share: float = 0.25
    controller_from: float = 0.0
    max_replay_steps: int = 50_000
    fit_updates: int = 100
    fit_episodes: int = 8
    fit_learning_rate: float = 1e-3


class Info(NamedTuple):
    """Figures of an iteration's training; those that are not known yet are 0.

    Attributes:
      mixture, reward, end, permits: parts of the model's loss.
      dreamed_return: mean return of the dreams that the controller last learned from, less the cost
        of the members' disagreement.
      policy_gradient: PPO's loss.
      reward_r2, mask_f1, done_accuracy, real_return, predicted_return, invalid_share, error_1,
      error_last: see `judging.Judgement`; the errors 1 and 20 steps ahead.
    """

    mixture: float
    reward: float
    end: float
    permits: float
    dreamed_return: float
    policy_gradient: float
    reward_r2: float = 0.0
    mask_f1: float = 0.0
    done_accuracy: float = 0.0
    real_return: float = 0.0
    predicted_return: float = 0.0
    invalid_share: float = 0.0
    error_1: float = 0.0
    error_last: float = 0.0


def make_agent(
    config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
) -> WorldModelAgent:
    """Make an agent that learns in dreams (see `agents`).

    Observations may also say what is allowed (`networks.inputs`), also for actions (rule, place).
    """
    at_least = functools.partial(policy_gradients.at_least, config)
    ranges = {
        **ppo.ranges(config),
        **at_least(1, "num_members", "memory_size", "head_size", "num_gaussians", "num_dreams"),
        **at_least(1, "max_replay_steps", "fit_updates", "fit_episodes"),
        **at_least(0, "num_waves", "disagreement", "temperature", "dream_steps", "dream_updates"),
        "random_share": 0 <= config.random_share <= 1,
        "controller_from": 0 <= config.controller_from <= 1,
        "real_share": 0 <= config.real_share < 1,
        # A controller sees latents, which no other policy does.
        "warm_start": not config.warm_start,
        # The model needs each real step, and dreams are not compared.
        "group": config.group == 1,
        # Its policy is the controller, whose actor has one answer.
        "components": config.components == 1,
        "fit_learning_rate": config.fit_learning_rate > 0,
    }
    policy_gradients.check("world_model", config, ranges)
    return WorldModelAgent(config, *tensor_spec.from_spec((time_step_spec, action_spec)))


class WorldModelAgent(tf_agent.TFAgent):
    """The agent; make it with `make_agent`, which checks the arguments.

    `train` takes a Trajectory [B, T] of whole episodes, arrays, padded with boundary steps.

    Attributes:
      model: the world model.
      controller: the PPO agent that learns in its dreams.
      replay: the real steps so far.
      sleeper: trains the controller in dreams.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        generator = np.random.default_rng([config.seed, 1])
        self.model = WorldModel(time_step_spec.observation, action_spec, config, generator)
        seen = actor_spec(self.model.latents.size, config.memory_size, self.model.allowed)
        # Dreamed rewards are in units of their own spread already.
        unscaled = dataclasses.replace(
            config, normalize_rewards=False, normalize_observations=False
        )
        self.controller = ppo.make_agent(unscaled, ts.time_step_spec(seen), action_spec)
        self._aim = self._make_aim(seen, action_spec) if config.magnify else None
        self.fitter = Fitter(self.model, config.fit_learning_rate)
        self.replay = Replay(self.model, config.max_replay_steps)
        self.sleeper = Sleeper(self.model, self.controller, config)
        self._judge = Judge(self.model)
        self._judgement: Judgement | None = None
        self._progress = tf.Variable(0.0, trainable=False, name="progress")
        self._by_chance = tf.Variable(config.random_share > 0, trainable=False, name="by_chance")
        memory = self.model.members[0].memory
        actor = self.controller.actor_network
        parts = Parts(self.model.latents, memory, actor, self.model.allowed, self._by_chance)
        super().__init__(
            time_step_spec,
            action_spec,
            ControllerPolicy(time_step_spec, action_spec, parts, is_greedy=True),
            ControllerPolicy(time_step_spec, action_spec, parts, is_greedy=False),
            train_sequence_length=None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )

    def _make_aim(self, seen: Any, action_spec: tf.TypeSpec) -> actors.ActorNetwork | None:
        """Make the network that keeps what the controller aimed at before the last fit."""
        if self.model.actions.kind != "normal":
            return None
        config = self._config
        network = actors.ActorNetwork(
            seen, action_spec, config, np.random.default_rng(0), config.state_dependent_std
        )
        network.create_variables()

        def aim(latents: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
            distribution, _ = network(seen_by_actor(latents, hidden, None, ""))
            return distribution.mode()

        self.model.aim_fn = aim
        return network

    def _take_aim(self) -> None:
        if self._aim is not None:
            sources = self.controller.actor_network.variables
            for target, source in zip(self._aim.variables, sources, strict=True):
                target.assign(source)

    def set_progress(self, progress: float) -> None:
        """Set learning rates, and how experience is collected; `progress` goes from 0 to 1."""
        self._progress.assign(np.float32(progress))
        self._by_chance.assign(progress < self._config.random_share)
        self.controller.set_progress(progress)

    def _train(self, experience: trajectory.Trajectory, weights: None = None) -> tf_agent.LossInfo:
        """Judge and fit the model, and train the controller; see the module's docstring."""
        number = int(self.train_step_counter.numpy())
        generator = np.random.default_rng([self._config.seed, number])
        new = self.replay.add(experience)
        if number:  # before, the model was never fitted
            self._judgement = self._judge.judge(new, generator)
        self._take_aim()
        config = self._config
        losses = self.fitter.fit(self.replay, config.fit_updates, config.fit_episodes, generator)
        dreamed_return, loss = 0.0, 0.0
        if float(self._progress.numpy()) >= config.controller_from:
            recent = None if self._by_chance.numpy() else (new, _info_of(experience))
            dreamed_return, loss = self.sleeper.train(self.replay, recent, generator)
        self.train_step_counter.assign_add(1)
        return tf_agent.LossInfo(sum(losses) + loss, self._info(losses, dreamed_return, loss))

    def _info(self, losses: Losses, dreamed_return: float, loss: float) -> Info:
        judgement = self._judgement
        info = Info(*losses, dreamed_return, loss)
        if judgement is None:
            return info
        shared = {
            name: getattr(judgement, name) for name in Info._fields if hasattr(judgement, name)
        }
        errors = judgement.error_by_step or [0.0]
        return info._replace(**shared, error_1=errors[0], error_last=errors[-1])

    def dreams(self, new: trajectory.Trajectory, num_steps: int, seed: int) -> DreamEnvironment:
        """Return dreams that begin where new episodes [B, T] began; they are not learned from."""
        replay = Replay(self.model)
        starts = Remembering(self.model)(replay.add(new))
        dream = Dream(self.model, self._config.temperature, self._config.disagreement)
        return DreamEnvironment(dream, starts, self.action_spec, num_steps, seed)

    def report(self) -> dict[str, Any]:
        """Return the entry `world_model` of result.json."""
        return {
            **self.sleeper.report(),
            "temperature": self._config.temperature,
            "prediction": dataclasses.asdict(self._judgement) if self._judgement else None,
        }

    def tables(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the errors of predictions 1 to 20 steps ahead, for a picture."""
        judgement = self._judgement
        return {"errors by steps ahead": judgement.by_steps_ahead()} if judgement else {}

    def save(self, directory: pathlib.Path) -> None:
        """Write into a directory what a resumed run needs beside the variables."""
        self.replay.save(directory)
        judgement = self._judgement
        text = json.dumps(dataclasses.asdict(judgement) if judgement else None)
        (directory / _JUDGEMENT_NAME).write_text(text, encoding="utf-8")

    def restore(self, directory: pathlib.Path) -> None:
        """Read what `save` wrote."""
        nothing = tensor_spec.zero_spec_nest(self.time_step_spec.observation, [1])
        none = np.zeros(0)
        like = Steps(self.model.latents.select(nothing), none, none, none, none)
        self.replay.restore(directory, like)
        judgement = json.loads((directory / _JUDGEMENT_NAME).read_text(encoding="utf-8"))
        self._judgement = Judgement(**judgement) if judgement else None


def _info_of(experience: trajectory.Trajectory) -> Any:
    """Return the parameters of the distributions that actions were drawn from, [N, …]."""
    is_taken = np.asarray(experience.step_type) != ts.StepType.LAST
    info = tree.map_structure(lambda array: np.asarray(array)[is_taken], experience.policy_info)
    return info["dist_params"]
