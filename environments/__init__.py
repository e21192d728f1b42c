"""The environments of all systems, each a TF-Agents `PyEnvironment`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from environments import stack
from environments.errors import UserError

if TYPE_CHECKING:
    from tf_agents.environments import py_environment

stack.prepare()

# The name of each system and its environment, imported only when it is made.
ENVIRONMENTS: dict[str, tuple[str, str]] = {
    "inlining": ("environments.inlining.environment", "InliningEnvironment"),
    "learn_to_optimize": (
        "environments.learn_to_optimize.environment",
        "LearnToOptimizeEnvironment",
    ),
    "tensor_graphs": ("environments.tensor_graphs.environment", "TensorGraphEnvironment"),
}


def make(name: str, **settings: Any) -> py_environment.PyEnvironment:
    """Make an environment by its name.

    Args:
      name: one of `ENVIRONMENTS`.
      **settings: arguments of the constructor of its class.

    Raises:
      UserError: no environment has that name.
    """
    if name not in ENVIRONMENTS:
        raise UserError(
            f"environment: expected one of {', '.join(ENVIRONMENTS)}, found {name!r}; "
            "correct the name"
        )
    module, class_name = ENVIRONMENTS[name]
    return getattr(importlib.import_module(module), class_name)(**settings)
