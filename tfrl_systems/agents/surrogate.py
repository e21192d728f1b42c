"""A surrogate: a Gaussian process of a function proposes trials, and the policy learns it.

For functions whose evaluations are dear. One model serves all contexts, so that a trial in one
tells of the others (A. Krause, C. S. Ong: Contextual Gaussian Process Bandit Optimization, 2011).
Trials are chosen by Thompson sampling, which needs no tuning and makes batches of any size
(K. Kandasamy et al.: Parallelised Bayesian Optimisation via Thompson Sampling, 2018);
`surrogates.search` says how. In the end an actor network, the same as all other agents have, learns
the model's answers, and then descends on the values that the model expects of its own.

Trials are one step long: an observation is what was chosen last and then the context, as the specs
say, and the value of a trial depends on the context and the action alone.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import threadpoolctl
from tf_agents.agents import tf_agent
from tf_agents.policies import actor_policy, greedy_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from environments import files
from environments.errors import UserError
from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.surrogates.distilling import Pupil, misses
from tfrl_systems.agents.surrogates.search import Search
from tfrl_systems.policies.trials import Trials

COLLECTS = "trials"

_ARRAYS_NAME = "trials.npz"
# Sets what is drawn for proposals and answers apart.
_PROPOSE, _ANSWER = 1, 2
_NUM_ANSWERS = 256
# The most steps that the policy then takes by the model's values.
_DESCENT_STEPS = 300
# A policy follows the answers if it loses no more than this, in units of the values' spread.
_FOLLOWED = 0.01


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.NetworkConfig):
    """Settings of a surrogate, beside those of the policy's network.

    Attributes:
      evaluations: trials of the function in all, in equal batches, one for each iteration; 0 to
        learn from a log alone.
      noise: standard deviation of the noise of values, in their units; 0 to estimate it.
      distil_steps: the most steps of L-BFGS by which the policy learns the model's answers.
    """

    evaluations: int = 200
    noise: float = 0.0
    distil_steps: int = 3000


class Info(NamedTuple):
    """Figures of an iteration.

    Attributes:
      trials: number of trials so far, those of a log included.
      failed: how many of them failed.
      noise: standard deviation of the noise that the model sees, in units of values.
    """

    trials: float
    failed: float
    noise: float


def make_agent(
    config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
) -> SurrogateAgent:
    """Make an agent that learns a model of a function (see `agents`)."""
    ranges = {
        **policy_gradients.at_least(config, 0, "noise", "evaluations"),
        **policy_gradients.at_least(config, 1, "distil_steps"),
    }
    policy_gradients.check("surrogate", config, ranges)
    return SurrogateAgent(config, *tensor_spec.from_spec((time_step_spec, action_spec)))


class SurrogateAgent(tf_agent.TFAgent):
    """The agent; make it with `make_agent`, which checks the arguments.

    `train` takes `Trials`.

    Attributes:
      actor_network: the network of the policy.
      search: trials and models.

    Raises:
      UserError: actions or observations are no bounded vectors, or observations are too short.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        seen = _bounded(time_step_spec.observation, "observations")
        chosen = _bounded(action_spec, "actions")
        num_actions, num_contexts = chosen.shape[0], seen.shape[0] - chosen.shape[0]
        if num_contexts < 0:
            raise UserError(
                "surrogate: expected observations of what was chosen last and then the context, "
                f"found {seen.shape[0]} numbers for {num_actions} actions; take another agent"
            )
        self._low = np.broadcast_to(chosen.minimum, chosen.shape)
        self._high = np.broadcast_to(chosen.maximum, chosen.shape)
        actor = policy_gradients.make_actor(config, time_step_spec, action_spec)
        self.actor_network = actor
        self.search = Search(num_actions, num_contexts, config.noise or None)
        self._before: tuple[dict[str, np.ndarray], Trials] | None = None
        policy = greedy_policy.GreedyPolicy(
            actor_policy.ActorPolicy(time_step_spec, action_spec, actor)
        )
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            policy,
            train_sequence_length=None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )

    @property
    def points(self) -> np.ndarray:
        """Return the points [N, n] of all trials so far."""
        return self.search.points

    @property
    def spread(self) -> float:
        """Return the standard deviation of the values so far."""
        assert self.search.model is not None
        return self.search.model.unit

    def add_log(self, trials: Trials) -> None:
        """Add trials that were made before the run."""
        self.search.add(trials.points, trials.values)

    def propose(self, count: int, iteration: int) -> np.ndarray:
        """Return points (x, c) float64 [count, n] of the box to try in an iteration."""
        with _one_thread():
            if self.search.model is None and len(self.points):
                self.search.fit()
            return self.search.propose(count, self._generator(iteration, _PROPOSE))

    def _train(self, experience: Trials, weights: None = None) -> tf_agent.LossInfo:
        self._before = self.search.state(), experience
        self._learn(experience)
        self.train_step_counter.assign_add(1)
        search = self.search
        failed = np.count_nonzero(~np.isfinite(search.values))
        if search.model is None:
            raise UserError(
                f"surrogate: expected two trials with a value, found {len(search.values)} trials "
                f"of which {failed} failed{': ' if experience.messages else ''}"
                f"{'; '.join(experience.messages[:1])}"
            )
        noise = search.model.noise
        info = Info(float(len(search.values)), float(failed), noise)
        return tf_agent.LossInfo(noise / search.model.unit, info)

    def _learn(self, trials: Trials) -> None:
        with _one_thread():
            self.search.add(trials.points, trials.values)
            self.search.fit()

    def set_progress(self, progress: float) -> None:
        """Have the policy learn from the model at the end, when `progress` is 1."""
        if progress < 1:
            return
        generator, search = self._generator(0, _ANSWER), self.search
        contexts = search.covering(_NUM_ANSWERS, generator)
        with _one_thread():
            answers = search.minima(contexts, generator)
            enough = float(self._priced(answers, contexts)[0].mean()) + _FOLLOWED
            pupil = Pupil(self.actor_network, contexts, search.num_actions)
            start = pupil.weights
            value = self._teach(pupil, answers, contexts, enough)
            if value > enough:
                weights, pupil.weights = pupil.weights, start
                valley = search.in_one_valley(answers, contexts)
                if self._teach(pupil, valley, contexts, enough) > value:
                    pupil.weights = weights

    def _teach(
        self, pupil: Pupil, actions: np.ndarray, contexts: np.ndarray, enough: float
    ) -> float:
        """Have a pupil learn actions [M, m], and go on by values if these are above `enough`.

        Returns:
          The mean of the values of what it does, in units of their spread.
        """
        scale = (self._high - self._low) / 2
        weights = self.search.steepness(actions, contexts) / (2 * scale) ** 2
        pupil.descend(misses(self._low + (actions + 1) * scale, weights), self._config.distil_steps)

        def values(answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            box = np.clip((answers - self._low) / scale - 1, -1, 1)
            heights, gradients = self._priced(box, contexts)
            return heights, gradients / scale

        value = pupil.mean(values)
        return pupil.descend(values, _DESCENT_STEPS) if value > enough else value

    def _priced(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return expected values and gradients as the search does, in units of their spread."""
        values, gradients = self.search.expected_and_gradients(actions, contexts)
        return values / self.spread, gradients / self.spread

    def expected(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for actions [M, m] at contexts [M, k] the expected values [M] and their stds."""
        with _one_thread():
            return self.search.expected(actions, contexts)

    def report(self) -> Mapping[str, Any]:
        """Return the entry `surrogate` of result.json."""
        search = self.search
        assert search.model is not None
        failed = int(np.count_nonzero(~np.isfinite(search.values)))
        return {"trials": len(search.values), "failed": failed, "noise": search.model.noise}

    def tables(self) -> Mapping[str, Any]:
        """Return no tables."""
        return {}

    def save(self, directory: pathlib.Path) -> None:
        """Write into a directory what a resumed run needs beside the variables."""
        assert self._before is not None
        state, trials = self._before
        np.savez(
            directory / _ARRAYS_NAME, new_points=trials.points, new_values=trials.values, **state
        )

    def restore(self, directory: pathlib.Path) -> None:
        """Read what `save` wrote, and learn again from the last iteration's trials."""
        arrays = files.read_arrays(directory / _ARRAYS_NAME)
        trials = Trials(arrays.pop("new_points"), arrays.pop("new_values"))
        self.search.restore(arrays)
        self._before = self.search.state(), trials
        self._learn(trials)

    def _generator(self, number: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, number, purpose])


def _bounded(spec: Any, name: str) -> Any:
    is_vector = isinstance(spec, tensor_spec.BoundedTensorSpec) and len(spec.shape) == 1
    if not is_vector or not spec.dtype.is_floating or not np.isfinite(spec.maximum).all():
        raise UserError(
            f"surrogate: expected {name} that are bounded vectors of floats, found {spec}; take "
            "another agent"
        )
    return spec


def _one_thread() -> Any:
    """Return a context in which BLAS uses one thread: more would change the last bits."""
    return threadpoolctl.threadpool_limits(1, "blas")
