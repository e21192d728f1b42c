"""What episodes begin at in training: models, and members of families that are drawn anew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np

from environments import contexts
from environments.contexts import ContextSampler
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.models import families
from tfrl_systems.drivers.requirements import here

_NUM_SIZED = 40
NUM_EVALUATED = 4


def sampler_of(names: Sequence[str]) -> ContextSampler[Model]:
    """Make a sampler that draws a name, each with the same probability, and then a model of it.

    Args:
      names: models, as `Model.load` takes them, and families. A family has another member in each
        episode, with a number below `families.FIRST_UNSEEN`.

    Raises:
      UserError: a model cannot be read.
    """
    draw = contexts.uniform([_sampler_of_one(name) for name in names])
    return lambda generator: draw(generator)(generator)


def in_turn(names: Iterable[str]) -> ContextSampler[Model]:
    """Make a sampler that returns one model after another, each of which is loaded only then."""
    remaining = iter(names)
    return lambda generator: _load(next(remaining))


def to_size_by(name: str) -> Sequence[str]:
    """Return the models that show how much room observations need: members of each family."""
    return families.members(name, 0, _NUM_SIZED) or (name,)


def to_evaluate_on(name: str) -> Sequence[str]:
    """Return the models that training evaluates on: of each family members that it never draws."""
    return families.members(name, families.FIRST_UNSEEN, NUM_EVALUATED) or (name,)


def _sampler_of_one(name: str) -> ContextSampler[Model]:
    if not families.named(name):
        model = _load(name)
        return lambda generator: model
    return functools.partial(_draw_member, families.named(name))


def _load(name: str) -> Model:
    """Load a model; members are not kept, because there are too many."""
    return Model.load(name) if families.is_member(name) else _load_once(name)


@functools.cache
def _load_once(name: str) -> Model:
    """Load a model under the name that it was asked for by, wherever its file lies.

    Environments can share models, because graphs are immutable.
    """
    return dataclasses.replace(Model.load(str(here(name))), name=name)


def _draw_member(named: Sequence[str], generator: np.random.Generator) -> Model:
    family = contexts.uniform(named)(generator)
    return _load(f"{family}:{int(generator.integers(families.FIRST_UNSEEN))}")
