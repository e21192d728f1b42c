"""A policy gradient agent's policy in NumPy, for collection workers and for saved policies.

Only `NumpyActor.from_policy`, `read_policy` and `act` import TensorFlow or TF-Agents.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from environments.errors import UserError
from tfrl_systems.policies import distributions, policy_files, variables
from tfrl_systems.policies.numpy_controller import NumpyController
from tfrl_systems.policies.numpy_graph import NumpyGraphNetwork
from tfrl_systems.policies.numpy_mixture import NumpyMixture
from tfrl_systems.policies.numpy_network import NumpyNetwork

if TYPE_CHECKING:
    import tensorflow as tf
    from tf_agents.policies import tf_policy
    from tf_agents.trajectories import policy_step
    from tf_agents.trajectories import time_step as ts

_FIRST = 0  # ts.StepType.FIRST
# The variables of TF-Agents' StreamingTensorNormalizer.
_NORMALISER = ("count", "mean", "squares")

NETWORKS: Mapping[str, type] = {
    "actor": NumpyNetwork,
    "graph_actor": NumpyGraphNetwork,
    "controller": NumpyController,
    "mixture": NumpyMixture,
}
"""The network class of each kind; `describe` and policy.json name the kind."""


class NumpyActor:
    """Acts as a collect policy does. It can be pickled.

    Actions are not clipped to their bounds, because a policy gradient needs the probabilities of
    the actions that were drawn. The environment clips them.

    Args:
      description: as the actor network's `describe` returns it.
      has_info: whether `act` returns the distributions' parameters as policy info, as PPO needs.
      is_greedy: whether `act` takes the likeliest actions instead of drawing them.
      layout: layout of all variables of the collect policy.
      positions: for each array of the network, its position among these variables.

    Attributes:
      network: one of `NETWORKS`, with the values that were loaded last; None before.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        has_info: bool,
        is_greedy: bool,
        layout: variables.Layout,
        positions: Mapping[str, int],
    ) -> None:
        self._description = dict(description)
        self._has_info, self._is_greedy = has_info, is_greedy
        self._layout = layout
        self._positions = dict(positions)
        self._action_dtype = np.dtype(description["actions"]["dtype"])
        self.network: Any = None

    @classmethod
    def from_policy(cls, policy: tf_policy.TFPolicy) -> NumpyActor:
        """Make the NumPy version of an agent's collect policy; call `load` to give it values.

        Raises:
          UserError: NumPy cannot run the policy.
        """
        from tf_agents.policies import greedy_policy

        network, named = read_policy(policy)
        is_greedy = isinstance(policy, greedy_policy.GreedyPolicy)
        sources = list(policy.variables())
        places = {id(variable): place for place, variable in enumerate(sources)}
        positions = {name: places[id(variable)] for name, variable in named.items()}
        layout = variables.Layout.of(sources)
        return cls(network.describe(), bool(policy.info_spec), is_greedy, layout, positions)

    def load(self, data: bytes) -> int:
        """Load all variables, as `policies.variables` packs them; return their version.

        Raises:
          VariablesError: names the variables that are missing or do not fit.
        """
        version, values = self._layout.read(data)
        arrays = {name: values[position] for name, position in self._positions.items()}
        if self.network is None:
            self.network = NETWORKS[self._description["kind"]](self._description, arrays)
        else:
            self.network.update(arrays)
        return version

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        """Choose one action for each row of time steps [B].

        Returns:
          Actions [B, ...] with the action spec's shape and dtype, not clipped to its bounds. The
          info is {"dist_params": …} or ().
        """
        from tf_agents.trajectories import policy_step

        network = self.network
        network.begin(time_step.step_type == _FIRST)
        parameters = network.parameters(time_step.observation)
        if self._is_greedy:
            action = distributions.mode(parameters)
        else:
            action = network.draw(parameters, generator)
        network.remember(action)
        info = {"dist_params": parameters} if self._has_info else ()
        return policy_step.PolicyStep(action.astype(self._action_dtype, copy=False), (), info)

    def entropy(self, observation: Any) -> np.ndarray:
        """Return the entropy of each row's first distribution in nats, float64 [B]."""
        return distributions.entropy(self.network.parameters_at_start(observation))

    def mode(self, observation: Any) -> np.ndarray:
        """Return the likeliest action of each row, within bounds: float32 [B, n], or int [B]."""
        return self.network.mode(observation).astype(self._action_dtype, copy=False)


def read_policy(policy: tf_policy.TFPolicy) -> tuple[Any, dict[str, tf.Variable]]:
    """Return a policy's actor network, and the variables by name that NumPy needs to run it.

    Raises:
      UserError: the policy has no actor network, or a part that NumPy cannot run.
    """
    import tensorflow as tf
    from tf_agents.utils import tensor_normalizer

    from tfrl_systems.networks.actors import Actor
    from tfrl_systems.policies.controller_policy import ControllerPolicy

    if isinstance(policy, ControllerPolicy):
        return policy, dict(policy.named_variables())
    actors = [submodule for submodule in policy.submodules if isinstance(submodule, Actor)]
    parts = {id(part) for actor in actors for part in actor.submodules}
    networks = [actor for actor in actors if id(actor) not in parts]
    normalisers = [
        submodule
        for submodule in policy.submodules
        if isinstance(submodule, tensor_normalizer.TensorNormalizer)
    ]
    streaming = tensor_normalizer.StreamingTensorNormalizer
    if len(networks) != 1 or not all(type(normaliser) is streaming for normaliser in normalisers):
        raise UserError(
            "policy: expected one of an agent of agents/, found another "
            f"{type(policy).__name__}; only those have a twin in NumPy"
        )
    named = dict(networks[0].named_variables())
    for normaliser in normalisers:
        for name, nest in zip(_NORMALISER, normaliser.variables, strict=False):
            named |= {f"{name}_{i}": leaf for i, leaf in enumerate(tf.nest.flatten(nest))}
    return networks[0], named


def load_network(directory: pathlib.Path | str) -> Any:
    """Load the network of a saved policy, one of `NETWORKS`, without TensorFlow.

    Raises:
      UserError: there is no policy, one of another kind, or its files are damaged.
    """
    described = policy_files.load_policy_json(directory)
    kind = described["kind"]
    if kind not in NETWORKS:
        raise UserError(
            f"{directory}: expected a policy of a kind of {', '.join(NETWORKS)}, found one of "
            f"{kind}; name another"
        )
    arrays = policy_files.load_arrays(directory, described)
    try:
        return NETWORKS[kind](described, arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{directory}: expected a policy whose files fit each other, found {error!r}; "
            "export the policy again"
        ) from error
