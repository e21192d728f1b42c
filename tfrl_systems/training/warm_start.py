"""The warm start: a policy that decides as the default does.

What is learned from there on comes from better decisions, and not from finding lost ones again.
BC-Max begins with a clone of the default, bc_0 of the paper's Figure 2; that the agent can repeat
the default's decisions, context for context, is the first thing to see. The actor of a policy
gradient is given weights that pass the default's decision on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfrl_systems.agents import bc_max
from tfrl_systems.episodes import labelled_experience
from tfrl_systems.networks import actors
from tfrl_systems.policies.numpy_policy import NumpyPolicy
from tfrl_systems.training.decisions import Outcome, decision_specs

ENOUGH = 0.99
_MAX_ROWS = 20_000
_MAX_ATTEMPTS = 4


def clone_default(
    outcomes: Sequence[Outcome], feature_names: tuple[str, ...], config: bc_max.Config
) -> tuple[NumpyPolicy, float]:
    """Clones the default, with more effort each time, until 99% of the contexts come out the same.

    A context is deterministic: equal decisions on all steps of an episode are the same episode, so
    nothing needs to be played.

    Args:
      outcomes: the default's episodes.
      feature_names: of their features.
      config: of the agent.

    Returns:
      The clone, and the share of the contexts in which all its decisions are the default's.
    """
    features = np.concatenate([one.features for one in outcomes])
    actions = np.concatenate([one.actions for one in outcomes]).astype(np.int64)
    rng = np.random.default_rng(config.seed)
    rows = rng.permutation(len(actions))[:_MAX_ROWS]
    experience, weights = labelled_experience(feature_names, features[rows], actions[rows])
    for attempt in range(_MAX_ATTEMPTS):
        effort = dataclasses.replace(
            config, epochs=config.epochs << attempt, num_trees=config.num_trees << attempt
        )
        agent = bc_max.make_agent(effort, *decision_specs(feature_names))
        agent.train(experience, weights)
        clone = NumpyPolicy.from_agent(agent, "clone")
        columns = clone.columns(feature_names)
        same = [
            bool(np.array_equal(clone.decide(one.features[:, columns]), one.actions))
            for one in outcomes
        ]
        share = float(np.mean(same))
        if share >= ENOUGH:
            break
    return clone, share


def follow_feature(network: actors.ActorNetwork, feature: str, probability: float) -> None:
    """Has an actor begin with the action that a feature names, whatever else it sees.

    The first unit of each hidden layer is made to pass the feature on, and the outputs to hear it;
    all other weights stay as they were drawn, so that there is something to learn with. They move
    the probability by a few hundredths at most, because first outputs are small.

    Args:
      network: its observation is a dict of numbers, its actions are 0 and 1.
      feature: the key of an integer that is 0 or 1.
      probability: of that action in the beginning, between 0 and 1, both excluded.
    """
    named = network.named_variables()
    activate = actors.ACTIVATIONS[network.describe()["activation"]]
    place = [one.path for one in network.inputs].index((feature,))
    # Integers enter by their signed logarithm.
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
