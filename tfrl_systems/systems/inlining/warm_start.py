"""The warm start: a policy that at first decides as the default does.

From there on training only has to find better decisions, and not to find the default's again.
BC-Max begins with a clone of the default, bc_0 of the paper's Figure 2. It shows first of all
whether the agent can repeat the default's decisions in each context. The actor of a policy gradient
agent gets weights that pass the default's decision on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfrl_systems.networks import actors
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.agent import labelled_experience
from tfrl_systems.systems.inlining.imitation.outcomes import Outcome, decision_specs
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy

ENOUGH = 0.99
_MAX_ROWS = 20_000
_MAX_ATTEMPTS = 4


def clone_default(
    outcomes: Sequence[Outcome], feature_names: tuple[str, ...], config: decision_agent.Config
) -> tuple[CallSitePolicy, float]:
    """Clone the default, with more effort each time, until 99% of the episodes are the same.

    A context is deterministic: if two policies decide alike at all steps of an episode, their
    episodes are the same. So no episode needs to be played.

    Args:
      outcomes: the default's episodes.
      feature_names: names of the features of these episodes.
      config: settings of the agent.

    Returns:
      The clone, and the share of the contexts in which it makes all of the default's decisions.
    """
    features = np.concatenate([outcome.features for outcome in outcomes])
    actions = np.concatenate([outcome.actions for outcome in outcomes]).astype(np.int64)
    rng = np.random.default_rng(config.seed)
    rows = rng.permutation(len(actions))[:_MAX_ROWS]
    experience, weights = labelled_experience(feature_names, features[rows], actions[rows])
    for attempt in range(_MAX_ATTEMPTS):
        effort = dataclasses.replace(config, epochs=config.epochs << attempt)
        agent = decision_agent.make_agent(effort, *decision_specs(feature_names))
        agent.train(experience, weights)
        clone = to_numpy(agent.policy, "clone")
        columns = clone.columns(feature_names)
        same = [
            bool(np.array_equal(clone.decide(outcome.features[:, columns]), outcome.actions))
            for outcome in outcomes
        ]
        share = float(np.mean(same))
        if share >= ENOUGH:
            break
    return clone, share


def follow_feature(network: actors.ActorNetwork, feature: str, probability: float) -> None:
    """Make an actor begin with the action that a feature names, whatever else it sees.

    The first unit of each hidden layer passes the feature on, and the outputs read it. All other
    weights stay as they were drawn, so that training has something to start from. They move the
    probability by a few hundredths at most, because the output layer's initial weights are small.

    Args:
      network: an actor whose observation is a dict of numbers and whose actions are 0 and 1.
      feature: key of an observed integer that is 0 or 1.
      probability: initial probability of the action that the feature names, above 0 and below 1.
    """
    named = network.named_variables()
    activate = actors.ACTIVATIONS[network.describe()["activation"]]
    place = [field.path for field in network.inputs].index((feature,))
    # The network takes the signed logarithm of integers, so 0 and 1 enter as 0 and log 2.
    ends = np.log1p(np.array([0.0, 1.0], np.float32))
    num_layers = len(named) // 2
    for number in range(num_layers - 1):
        kernel, bias = (named[f"{kind}_{number}"] for kind in ("kernel", "bias"))
        weights, offsets = kernel.numpy(), bias.numpy()
        weights[:, 0] = 0
        weights[place, 0] = 2 / (ends[1] - ends[0])
        offsets[0] = -1 - weights[place, 0] * ends[0]
        kernel.assign(weights)
        bias.assign(offsets)
        ends, place = activate(np.array([-1.0, 1.0], np.float32)).numpy(), 0
    kernel, bias = (named[f"{kind}_{num_layers - 1}"] for kind in ("kernel", "bias"))
    weights = kernel.numpy()
    slope = np.log(probability / (1 - probability)) / (ends[1] - ends[0])
    weights[place] = [-slope, slope]
    kernel.assign(weights)
    bias.assign(-weights[place] * ends.mean())
