"""Samplers of contexts, from which episodes start: x ~ D.

A `ContextSampler` draws the context of the next episode: a module, a graph or a start point. It
gets the environment's own random generator, so an environment's seed decides all of its contexts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from environments.errors import UserError

Context = TypeVar("Context")
ContextSampler = Callable[[np.random.Generator], Context]


def uniform(contexts: Sequence[Context]) -> ContextSampler[Context]:
    """Make a sampler that draws each context with the same probability.

    Raises:
      UserError: there are no contexts.
    """
    _check_some(contexts)
    return lambda generator: contexts[int(generator.integers(len(contexts)))]


def sequential(contexts: Sequence[Context]) -> ContextSampler[Context]:
    """Make a sampler that returns one context after another, and starts over after the last.

    Raises:
      UserError: there are no contexts.
    """
    _check_some(contexts)
    cycle = itertools.cycle(contexts)
    return lambda generator: next(cycle)


def _check_some(contexts: Sequence[Context]) -> None:
    if not contexts:
        raise UserError("contexts: expected one or more to sample from, found none; add some")
