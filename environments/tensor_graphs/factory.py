"""Make the environment of tensor graphs from names: of models and of an objective."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from environments.contexts import Named
from environments.errors import UserError
from environments.tensor_graphs.costs.objectives import Objective, make_objective
from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.settings import Settings

# A stock network has an output for each action; few models have more matches of one rule.
_MAX_LOCATIONS = 32


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
      **fields: fields of `Settings`. With `models`, max_locations is 32 if nothing else is said,
        and what does not fit is left out.

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
            fields = {"max_locations": _MAX_LOCATIONS, "truncate": True, **fields}
    settings = dataclasses.replace(settings or Settings(), **fields)
    if isinstance(objective, str):
        objective = make_objective(objective)
    return TensorGraphEnvironment(sampler, settings, rules, objective, seed, measure_fn)
