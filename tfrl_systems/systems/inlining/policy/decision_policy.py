"""A TF-Agents policy with a decision model; it departs from a baseline only if it is sure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from tfrl_systems.systems.inlining.policy import votes
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_network import DecisionNetworks


def decision_specs(
    feature_names: Sequence[str],
) -> tuple[ts.TimeStep, tensor_spec.BoundedTensorSpec]:
    """Return specs of call sites: time steps with a dict of int64 scalars, and an action 0 or 1."""
    observation = {name: tf.TensorSpec((), tf.int64, name) for name in feature_names}
    action = tensor_spec.BoundedTensorSpec((), tf.int64, 0, 1, "action")
    return ts.time_step_spec(observation), action


class DecisionPolicy(tf_policy.TFPolicy):
    """A policy that draws 0 or 1 from a Categorical; a GreedyPolicy around it takes the likelier.

    Args:
      observed: names of the integer scalars that are observed.
      model: the decision model; its columns are `feature_names`, in that order.
      feature_names: names of the observations that the model gets.
      baseline_feature, margin: see `cloning.Config`.
      scope_feature: an observation that is 1 if `margin` holds. Otherwise
        `outside_margin` holds in place of `margin`. "" if `margin` always holds.
      settings: the settings that made the policy, as JSON values; stored in policy.json.
    """

    def __init__(
        self,
        observed: Sequence[str],
        model: DecisionNetworks,
        feature_names: Sequence[str],
        baseline_feature: str,
        scope_feature: str,
        margin: float,
        settings: Mapping[str, Any],
    ) -> None:
        self.model = model
        self._feature_names = tuple(feature_names)
        self._baseline_feature = baseline_feature
        self._scope_feature = scope_feature
        self._margin, self._outside_margin = margin, votes.NEVER
        # As text, which TensorFlow does not wrap.
        self._settings = json.dumps(dict(settings))
        super().__init__(*decision_specs(observed), name="DecisionPolicy")

    def logits(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return logits of actions 0 and 1, float32 [..., 2], for observations of shape [...]."""
        columns = [tf.cast(observation[name], tf.int64) for name in self._feature_names]
        features = tf.stack(columns, axis=-1)
        counted = self.model.votes(tf.reshape(features, [-1, len(columns)]))
        total = tf.reshape(counted, tf.shape(features)[:-1])
        towards = tf.zeros_like(total)
        if self._baseline_feature:
            inlines = observation[self._baseline_feature] > 0
            towards = tf.where(inlines, tf.ones_like(total), -tf.ones_like(total))
        steps = self._with_margin(total, towards, self._margin)
        if self._scope_feature:
            inside = tf.equal(observation[self._scope_feature], 1)
            outside = self._with_margin(total, towards, self._outside_margin)
            steps = tf.where(inside, steps, outside)
        logit = tf.cast(steps, tf.float64) / votes.half_steps_per_logit(self.model.num_models)
        logit = tf.cast(logit, tf.float32)
        return tf.stack([tf.zeros_like(logit), logit], axis=-1)

    def set_margins(self, margin: float, outside_margin: float = votes.NEVER) -> None:
        """Set the margins from now on; graph functions made before keep the old ones."""
        self._margin, self._outside_margin = margin, outside_margin

    def _with_margin(self, total: tf.Tensor, towards: tf.Tensor, margin: float) -> tf.Tensor:
        if margin >= votes.NEVER:
            total = tf.zeros_like(total)  # as in `CallSitePolicy`, which need not ask the model
        return votes.half_steps(total, towards, margin, self.model.num_models)

    def describe(self) -> dict[str, Any]:
        """Return what `CallSitePolicy` needs beside the model's arrays, as JSON values."""
        return {
            "kind": self.model.kind,
            "num_models": self.model.num_models,
            "features": list(self._feature_names),
            "baseline_feature": self._baseline_feature,
            "scope_feature": self._scope_feature,
            "margin": self._margin,
            "outside_margin": self._outside_margin,
            "settings": json.loads(self._settings),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the model's arrays."""
        return self.model.arrays()

    def saved_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what `policies.export` writes: the description and the arrays."""
        names = to_numpy(self).feature_names
        return {**self.describe(), "features_needed": list(names)}, self.arrays()

    def _variables(self) -> list[tf.Variable]:
        return list(self.model.variables)

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> policy_step.PolicyStep:
        distribution = tfp.distributions.Categorical(
            logits=self.logits(time_step.observation), dtype=self.action_spec.dtype
        )
        return policy_step.PolicyStep(distribution, policy_state)


def to_numpy(policy: DecisionPolicy, name: str = "learned") -> CallSitePolicy:
    """Make the NumPy twin of a decision policy as it is now; later training does not change it."""
    return CallSitePolicy(policy.describe(), policy.arrays(), name)
