"""Make the environment of learn_to_optimize from the name of a function."""

from __future__ import annotations

import dataclasses
from typing import Any

from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.functions import Objective
from environments.learn_to_optimize.settings import Settings

_FIELDS = frozenset(field.name for field in dataclasses.fields(Settings))


def make_environment(
    function: str | Objective = "shifted_ackley",
    *,
    settings: Settings | None = None,
    **arguments: Any,
) -> LearnToOptimizeEnvironment:
    """Make an environment of a function, one of those by name or one's own as module:callable.

    Args:
      function: see `functions.make_objective`.
      settings: all settings; or some of them by name, as in reward="scaled":
      **arguments: fields of `Settings`, and other arguments of `LearnToOptimizeEnvironment`.

    Raises:
      UserError: the function or a setting cannot be used.
    """
    fields = {name: arguments.pop(name) for name in _FIELDS & set(arguments)}
    settings = dataclasses.replace(settings or Settings(), **fields)
    return LearnToOptimizeEnvironment(function, settings=settings, **arguments)
