"""The environments of all systems, each a TF-Agents `PyEnvironment`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from environments import stack
from environments.errors import UserError

if TYPE_CHECKING:
    from tf_agents.environments import py_environment

stack.prepare()

# The name of each system and what makes its environment, imported only when it is made.
ENVIRONMENTS: dict[str, tuple[str, str]] = {
    "inlining": ("environments.inlining.factory", "make_environment"),
    "learn_to_optimize": ("environments.learn_to_optimize.factory", "make_environment"),
    "tensor_graphs": ("environments.tensor_graphs.factory", "make_environment"),
}


def make(name: str, **settings: Any) -> py_environment.PyEnvironment:
    """Make an environment by its name.

        make("inlining", corpus="runs/mine")
        make("tensor_graphs", models=["bert-tiny"], objective="analytic")
        make("learn_to_optimize", function="shifted_ackley", dimensions=3, free=1)

    Args:
      name: one of `ENVIRONMENTS`.
      **settings: arguments of `make_environment` in the system's factory.py.

    Raises:
      UserError: no environment has that name, or there is no such setting.
    """
    if name not in ENVIRONMENTS:
        raise UserError(
            f"environment: expected one of {', '.join(ENVIRONMENTS)}, found {name!r}; "
            "correct the name"
        )
    module, make_name = ENVIRONMENTS[name]
    try:
        return getattr(importlib.import_module(module), make_name)(**settings)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UserError(
            f"settings of {name}: {str(error).split(') ')[-1]}; {module} lists them"
        ) from error
