"""The warm start: a clone of the default, bc_0 of the paper's Figure 2.

That the agent can repeat the default's decisions, context for context, is the first thing to see:
what it learns later then comes from better decisions and not from lost ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfrl_systems.agents import bc_max
from tfrl_systems.episodes import labelled_experience
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
