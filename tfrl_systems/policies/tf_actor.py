"""Any TF-Agents policy as an actor: TensorFlow computes the distributions, NumPy draws from them.

TensorFlow's own draws would depend on what it drew before, in that process; a NumPy generator makes
them depend on nothing but its seed. Everything that TensorFlow does in a step is one graph function
of one batch size: fewer rows are filled up, since the batch's shape changes the last bits of a
matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tree

from environments.errors import UserError
from tfrl_systems.policies import distributions, variables

if TYPE_CHECKING:
    from tf_agents.policies import tf_policy
    from tf_agents.trajectories import policy_step
    from tf_agents.trajectories import time_step as ts


class TFActor:
    """Acts as a collect policy does. It can be pickled if `make_policy` can.

    Actions are not cut off at their bounds, as `NumpyActor`'s are not.

    Args:
      make_policy: makes the collect policy, in the process that acts.
      batch_size: rows that TensorFlow computes at a time.
    """

    def __init__(self, make_policy: Callable[[], tf_policy.TFPolicy], batch_size: int) -> None:
        self._make_policy = make_policy
        self._batch_size = batch_size
        self._policy: tf_policy.TFPolicy | None = None
        self._packer: variables.Packer | None = None
        self._distribution: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what TensorFlow made."""
        return vars(self) | {"_policy": None, "_packer": None, "_distribution": None}

    def load(self, data: bytes) -> int:
        """Takes new values.

        Args:
          data: what `policies.variables` makes of all variables of the collect policy.

        Returns:
          The buffer's version.

        Raises:
          VariablesError: names the variables that are missing or do not fit.
        """
        if self._packer is None:
            self._packer = variables.Packer(self._ready().variables())
        return self._packer.from_bytes(data)

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        """Draws one action for each row.

        Args:
          time_step: batched arrays [B, ...].
          generator: decides the draws.

        Returns:
          Actions [B, ...] as the action spec has them, but for its bounds, and the policy's info.
        """
        from tf_agents.trajectories import policy_step

        parameters, info = self._compute(time_step)
        action = distributions.draw(parameters, generator)
        dtype = self._ready().action_spec.dtype.as_numpy_dtype
        return policy_step.PolicyStep(action.astype(dtype, copy=False), (), info)

    def entropy(self, observation: Any) -> np.ndarray:
        """Entropy of each row's distribution in nats, float64 [B]."""
        from tf_agents.trajectories import time_step as ts

        num_rows = len(tree.flatten(observation)[0])
        return distributions.entropy(self._compute(ts.restart(observation, num_rows))[0])

    def _ready(self) -> tf_policy.TFPolicy:
        """The policy, made when it is first needed.

        Raises:
          UserError: it has a state, or an action of several parts.
        """
        if self._policy is None:
            policy = self._make_policy()
            if policy.policy_state_spec or not hasattr(policy.action_spec, "dtype"):
                raise UserError(
                    "policy: expected one without a state and with one action, found "
                    f"{policy.policy_state_spec} and {policy.action_spec}; use another agent"
                )
            self._policy = policy
        return self._policy

    def _compute(self, time_step: ts.TimeStep) -> tuple[distributions.Parameters, Any]:
        """Parameters of the distributions and policy info of any number of rows."""
        num_rows = len(time_step.step_type)
        blocks = [
            self._compute_block(_rows(time_step, start, start + self._batch_size))
            for start in range(0, num_rows, self._batch_size)
        ]
        if len(blocks) == 1:
            return blocks[0]
        return tree.map_structure(lambda *arrays: np.concatenate(arrays), *blocks)

    def _compute_block(self, time_step: ts.TimeStep) -> tuple[distributions.Parameters, Any]:
        num_rows = len(time_step.step_type)
        if self._distribution is None:
            self._distribution = _distribution_function(self._ready())
        if missing := self._batch_size - num_rows:
            time_step = tree.map_structure(
                lambda array: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]),
                time_step,
            )
        found = self._distribution(time_step)
        return tree.map_structure(lambda tensor: tensor.numpy()[:num_rows], found)


def _distribution_function(policy: tf_policy.TFPolicy) -> Callable[[Any], Any]:
    """A graph function from time steps to parameters, as in `distributions`, and policy info."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    from tfrl_systems.networks import graph_actions

    @tf.function(autograph=False)
    def compute(time_step: Any) -> tuple[Any, Any]:
        step = policy.distribution(time_step)
        found = step.action
        if isinstance(found, tfp.distributions.Categorical):
            return {"logits": found.logits_parameter()}, step.info
        if isinstance(found, tfp.distributions.MultivariateNormalDiag):
            return {"loc": found.mean(), "scale_diag": found.stddev()}, step.info
        if isinstance(found, graph_actions.ListedActions):
            return {"logits": found.logits, "actions": found.actions}, step.info
        raise UserError(
            "policy: expected a categorical or a normal distribution with independent components, "
            f"or listed actions, found {found}; use another agent"
        )

    return compute


def _rows(nest: Any, start: int, end: int) -> Any:
    return tree.map_structure(lambda array: array[start:end], nest)
