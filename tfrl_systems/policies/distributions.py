"""Distributions over the actions of a batch, in NumPy.

A distribution is the dict of its parameters, named as in TensorFlow Probability and as PPO needs
them in its policy info:

    normal, independent coordinates   loc, scale_diag [B, n]
    `networks.distributions.Mixture`  logits [B, K], loc, scale_diag [B, K, n]
    categorical                       logits [B, num_actions]
    the same over a list of actions   logits, and actions [B, num_actions, n]
    `NumberedActions` there           rule_logits [B, R], place_logits [B, S] or [B, R, S],
                                      num_places [B, R]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = Mapping[str, np.ndarray]

# The logit of an action that is not allowed, as in networks.distributions; a test compares them.
_MASKED = np.float32(-1e9)
_HALF_LOG_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


def draw(parameters: Parameters, generator: np.random.Generator) -> np.ndarray:
    """Draw one action for each row.

    Returns:
      float32 [B, n] if normal, int64 [B] if categorical, or rows [B, n] of the list of actions.
    """
    if "rule_logits" in parameters:
        rules = _draw_one(parameters["rule_logits"], generator)
        return np.stack([rules, _draw_one(_places_of(parameters, rules), generator)], axis=1)
    if "loc" in parameters:
        loc, scale = parameters["loc"], parameters["scale_diag"]
        if "logits" in parameters:
            components = _draw_one(parameters["logits"], generator)
            rows = np.arange(len(components))
            loc, scale = loc[rows, components], scale[rows, components]
        noise: np.ndarray = generator.standard_normal(loc.shape, np.float32)
        noise *= scale
        noise += loc
        return noise
    return _at(_draw_one(parameters["logits"], generator), parameters)


def mode(parameters: Parameters) -> np.ndarray:
    """Return the likeliest action of each row, shaped as by `draw`; ties go to the first."""
    if "rule_logits" in parameters:
        rules = parameters["rule_logits"].argmax(axis=1)
        return np.stack([rules, _places_of(parameters, rules).argmax(axis=1)], axis=1)
    if "logits" not in parameters:
        return parameters["loc"]
    best = parameters["logits"].argmax(axis=1)
    if "loc" in parameters:
        means: np.ndarray = parameters["loc"][np.arange(len(best)), best]
        return means
    return _at(best, parameters)


def entropy(parameters: Parameters) -> np.ndarray:
    """Return the entropy of each row's distribution in nats, float64 [B].

    Of a mixture it is that of component and action, the action's own where means lie apart.
    """
    if "rule_logits" in parameters:
        shares = _normalised_shares(parameters["rule_logits"])
        counts = np.maximum(parameters["num_places"], 1)
        of_places = _entropies(_cut_off(_by_rule(parameters), counts))
        return _entropies(parameters["rule_logits"]) + np.sum(shares * of_places, axis=1)
    if "loc" in parameters:
        scale = parameters["scale_diag"].astype(np.float64)
        own = np.log(scale).sum(axis=-1) + scale.shape[-1] * _HALF_LOG_2_PI_E
        if "logits" not in parameters:
            return own
        shares = _normalised_shares(parameters["logits"])
        return _entropies(parameters["logits"]) + np.sum(shares * own, axis=1)
    return _entropies(parameters["logits"])


def uniform(parameters: Parameters) -> dict[str, np.ndarray]:
    """Return the parameters that make all allowed discrete actions equally likely."""
    if "rule_logits" in parameters:
        counts = parameters["num_places"]
        logits = np.where(counts > 0, np.log(np.maximum(counts, 1)), parameters["rule_logits"])
        places = np.zeros_like(parameters["place_logits"])
        return {**parameters, "rule_logits": logits.astype(np.float32), "place_logits": places}
    logits = parameters["logits"]
    return {**parameters, "logits": np.where(logits > _MASKED / 2, np.float32(0), logits)}


def of_list(parameters: Parameters, actions: np.ndarray, is_listed: np.ndarray) -> Parameters:
    """Return the same distribution over a list of pairs (rule, place), as one with "logits".

    Args:
      parameters: parameters of a distribution over pairs; others are returned as they are.
      actions: int32 [B, A, 2], the pairs.
      is_listed: bool [B, A], which rows of the list count.
    """
    if "rule_logits" not in parameters:
        return parameters
    rows = np.arange(len(actions))[:, np.newaxis]
    rules, places = actions[..., 0], actions[..., 1]
    own = parameters["place_logits"]
    counts = np.maximum(parameters["num_places"], 1)[rows, rules]
    # The sum over the first n places, for each n.
    most = own.max(axis=-1, keepdims=True)
    totals = np.log(np.cumsum(np.exp(own - most), axis=-1)) + most
    of_rule = (rows, rules) if own.ndim == 3 else (rows,)
    logits = parameters["rule_logits"][rows, rules] - totals[(*of_rule, counts - 1)]
    logits += own[(*of_rule, np.minimum(places, own.shape[-1] - 1))]
    is_known = is_listed & (places < counts)
    return {"logits": np.where(is_known, logits, _MASKED), "actions": actions}


def _draw_one(logits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    shares = _shares(logits)
    np.cumsum(shares, axis=1, out=shares)
    # An action of probability 0 is never drawn: its interval is empty.
    below = shares <= generator.random((len(shares), 1)) * shares[:, -1:]
    outcomes: np.ndarray = below.sum(axis=1)
    return outcomes


def _places_of(parameters: Parameters, rules: np.ndarray) -> np.ndarray:
    """Return the logits [B, S] of the places of one rule for each row."""
    rows, logits = np.arange(len(rules)), parameters["place_logits"]
    own = logits[rows, rules] if logits.ndim == 3 else logits
    return _cut_off(own, np.maximum(parameters["num_places"][rows, rules], 1))


def _by_rule(parameters: Parameters) -> np.ndarray:
    """Return the logits of places [B, R, S]."""
    logits = parameters["place_logits"]
    if logits.ndim == 3:
        return logits
    return np.repeat(logits[:, np.newaxis], parameters["num_places"].shape[1], axis=1)


def _cut_off(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mask the logits [..., S] of places from `counts` [...] on."""
    return np.where(np.arange(logits.shape[-1]) < counts[..., np.newaxis], logits, _MASKED)


def _entropies(logits: np.ndarray) -> np.ndarray:
    """Return the entropies of softmax distributions [..., n], float64 [...]."""
    shares = _normalised_shares(logits)
    # 0 log 0 is 0.
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -np.einsum("...n,...n->...", shares, logs)


def _at(places: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return the actions with these numbers: the numbers, or rows of the list if there is one."""
    if "actions" not in parameters:
        return places
    return parameters["actions"][np.arange(len(places)), places]


def _shares(logits: Any) -> np.ndarray:
    """Return values proportional to the probabilities, float64 [B, n]; each row's maximum is 1."""
    return np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))


def _normalised_shares(logits: Any) -> np.ndarray:
    shares = _shares(logits)
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares
