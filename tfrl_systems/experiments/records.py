"""Finds the records of the systems in `systems/`."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pathlib
import pkgutil
from typing import Any

from environments.errors import UsageError
from tfrl_systems.training.system import System

_SYSTEMS = "tfrl_systems.systems"


@functools.cache
def system_names() -> tuple[str, ...]:
    """Return the names of all systems, sorted."""
    package = importlib.import_module(_SYSTEMS)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))


def summary_of(name: str) -> str:
    """Return what a system is, in a few words. The system's module is read but not imported."""
    spec = importlib.util.find_spec(f"{_SYSTEMS}.{name}")
    assert spec is not None and spec.origin is not None
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or name).splitlines()[0]
    return first.partition(": ")[2].rstrip(".") or first


def find_system(name: str) -> System:
    """Return the record of a system.

    Raises:
      UsageError: there is no system of that name.
    """
    if name not in system_names():
        raise UsageError(f"system: expected one of {', '.join(system_names())}; found {name!r}")
    system: System = importlib.import_module(f"{_SYSTEMS}.{name}").SYSTEM
    return system


def implementation_of(verb: str) -> Any:
    """Import the module that implements a verb which only one system has."""
    systems = map(find_system, system_names())
    return importlib.import_module(
        next(system.verbs[verb] for system in systems if verb in system.verbs)
    )
