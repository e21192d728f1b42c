"""The entropy of a policy while it collected, from the distributions that it recorded."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, softmax

from tfrl_systems.episodes import Experience


def mean_entropy(experience: Experience) -> float | None:
    """Return the mean entropy of the collect policy's action distributions, in nats.

    Args:
      experience: the experience, whose policy info holds "dist_params" as PPO records them:
        "logits" of a categorical distribution, or "loc" and "scale" (or "scale_diag") of a
        Gaussian. Boundary steps, which include padding, do not count.

    Returns:
      The mean over steps; None if the distributions were not recorded.
    """
    steps = experience.trajectory
    info = steps.policy_info
    parameters = info.get("dist_params", {}) if isinstance(info, dict) else {}
    if "logits" in parameters:
        logits = np.asarray(parameters["logits"], np.float64)
        entropies = entr(softmax(logits, axis=-1)).sum(-1)
    elif scale := parameters.keys() & {"scale", "scale_diag"}:
        deviations = np.asarray(parameters[scale.pop()], np.float64)
        entropies = np.log(np.sqrt(2 * np.pi * np.e) * deviations)
    else:
        return None
    is_taken = ~np.asarray(steps.is_boundary())
    # If an action has several components, their entropies add up.
    per_step = entropies.reshape(*is_taken.shape, -1).sum(-1)
    return float(per_step[is_taken].mean())
