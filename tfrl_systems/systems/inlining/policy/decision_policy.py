"""A TF-Agents policy with a decision model; it departs from a baseline only if it is sure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy import votes
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_network import DecisionNetworks


class DecisionPolicy(tf_policy.TFPolicy):
    """A policy that draws 0 or 1 from a Categorical; a GreedyPolicy around it takes the likelier.

    Args:
      time_step_spec: spec whose observation is a dict of integer scalars by name.
      action_spec: an integer scalar, 0 or 1.
      model: the decision model; its columns are `feature_names`, in that order.
      feature_names: names of the observations that the model gets.
      baseline_feature: the observation that holds the baseline's action; "" for none.
      margin: logit added in favour of the baseline's action.
      settings: the settings that made the policy, as JSON values; stored in policy.json.
      scope_feature: an observation that is 1 if `margin` holds. Otherwise
        `outside_margin` holds in place of `margin`. "" if `margin` always holds.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        model: DecisionNetworks,
        feature_names: tuple[str, ...],
        baseline_feature: str,
        margin: float,
        settings: Mapping[str, Any],
        scope_feature: str = "",
    ) -> None:
        self.model = model
        self._feature_names = feature_names
        self._baseline_feature = baseline_feature
        self._scope_feature = scope_feature
        self._margin, self._outside_margin = margin, votes.NEVER
        self._settings = json.dumps(dict(settings))
        super().__init__(time_step_spec, action_spec, name="DecisionPolicy")

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
        num_models = self.model.num_models
        steps = self._with_margin(total, towards, self._margin)
        if self._scope_feature:
            inside = tf.equal(observation[self._scope_feature], 1)
            outside = self._with_margin(total, towards, self._outside_margin)
            steps = tf.where(inside, steps, outside)
        logit = tf.cast(steps, tf.float64) / votes.half_steps_per_logit(num_models)
        logit = tf.cast(logit, tf.float32)
        return tf.stack([tf.zeros_like(logit), logit], axis=-1)

    def set_margins(self, margin: float, outside_margin: float = votes.NEVER) -> None:
        """Set the margins from now on; graph functions made before keep the old ones.

        Args:
          margin: logit added in favour of the baseline's action.
          outside_margin: the same outside the scope; by default the policy never departs there.
        """
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


def unwrap(policy: tf_policy.TFPolicy) -> DecisionPolicy:
    """Return the decision policy inside wrappers such as GreedyPolicy.

    Args:
      policy: a decision policy, or a wrapper around one.

    Returns:
      The decision policy.

    Raises:
      UserError: there is none.
    """
    found = policy
    while not isinstance(found, DecisionPolicy):
        if not hasattr(found, "wrapped_policy"):
            raise UserError(
                f"policy: expected one made by agents.bc_max, found {type(policy).__name__}; "
                "only decision policies are saved with a NumPy twin"
            )
        found = found.wrapped_policy
    return found


def to_numpy(policy: tf_policy.TFPolicy, name: str = "learned") -> CallSitePolicy:
    """Make the NumPy twin of a decision policy as it is now; later training does not change it."""
    inner = unwrap(policy)
    return CallSitePolicy(inner.describe(), inner.arrays(), name)
