"""Make the environment of tensor graphs from names: of models and of an objective."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from environments.contexts import Named
from environments.errors import UserError
from environments.tensor_graphs.costs.objectives import make_objective
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.rewriting.engine import Objective
from environments.tensor_graphs.settings import SIZES, Settings

# A stock network has an output for each action: so there are not many more than at first.
_GROWTH = 3
_MOST = 1 << 12


def make_environment(
    models: Sequence[str | os.PathLike[str]] | None = None,
    *,
    objective: str | Objective | None = None,
    rules: Any = None,
    sampler: Any = None,
    seed: int = 0,
    measure_fn: Any = None,
    settings: Settings | None = None,
    **fields: Any,
) -> TensorGraphEnvironment:
    """Make an environment that draws models, each with the same probability.

    Args:
      models: built-in models and ONNX files, as `Model.load` takes them; or None, with a sampler.
      objective: an objective, or its name (`costs.objectives.NAMES`): "analytic", which needs no
        measurement, or "onnxruntime", which is measured on this machine; None for the latter.
      rules: see `TensorGraphEnvironment`, as for `sampler`, `seed` and `measure_fn`.
      sampler: draws the models, if they are not given.
      seed: of the models drawn.
      measure_fn: measures whole models.
      settings: all settings; or some of them by name, as in reward="terminal":
      **fields: fields of `Settings`. With `models`, max_locations is three times what the models
        need before any step, if nothing else is said, and what does not fit is left out.

    Raises:
      UserError: a model, a setting or the objective cannot be used.
    """
    if (models is None) == (sampler is None):
        raise UserError(
            "models: expected names, or a sampler; give one of them, as in models=['bert-tiny']"
        )
    if models is not None:
        names = [models] if isinstance(models, str | os.PathLike) else models
        sampler = Named({str(name): Model.load(str(name)) for name in names})
        if settings is None:
            fields = {"truncate": True, **fields}
            if "max_locations" not in fields:
                fields["max_locations"] = _GROWTH * _num_locations(sampler, rules)
    settings = dataclasses.replace(settings or Settings(), **fields)
    if isinstance(objective, str):
        objective = make_objective(objective)
    return TensorGraphEnvironment(sampler, settings, rules, objective, seed, measure_fn)


def _num_locations(models: Named[Model], rules: Any) -> int:
    """Return the most matches that a rule has in a model before any step, at least 1."""
    rooms: dict[str, Any] = dict.fromkeys(SIZES, _MOST)
    roomy = Settings(max_steps=1, truncate=True, **rooms)
    environment = TensorGraphEnvironment(models, roomy, rules, make_objective("analytic"))
    most = 1
    for model in models.contexts.values():
        observation = environment.reset_at(model).observation
        most = max(most, int(observation["location_masks"].sum(axis=1).max()))
    return most
