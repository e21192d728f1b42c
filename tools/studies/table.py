"""The table of all studies: its name, and where it is declared."""

from __future__ import annotations

import importlib

from environments.errors import UsageError
from tools.studies.study import Study

# name -> (module, attribute)
STUDIES: dict[str, tuple[str, str]] = {
    "agents": ("agents", "AGENTS"),
    "quality": ("learn_to_optimize", "QUALITY"),
    "samplers": ("learn_to_optimize", "SAMPLERS"),
    "few_evaluations": ("contextual", "FEW_EVALUATIONS"),
    "unseen": ("learn_to_optimize", "UNSEEN"),
    "folds": ("inlining", "FOLDS"),
    "baselines": ("inlining", "BASELINES"),
    "ladder": ("ladder", "LADDER"),
    "graphs": ("graphs", "GRAPHS"),
    "unmeasured": ("unmeasured", "UNMEASURED"),
    "files": ("files", "FILES"),
    "pools": ("pools", "POOLS"),
    "long_runs": ("long_runs", "LONG_RUNS"),
    "faults": ("faults.campaign", "FAULTS"),
    "bad_inputs": ("bad_inputs.campaign", "BAD_INPUTS"),
}


def find_study(name: str) -> Study:
    """Return the study of a name.

    Raises:
      UsageError: there is none.
    """
    if name not in STUDIES:
        raise UsageError(f"expected one of {', '.join(STUDIES)}; found {name!r}")
    module, attribute = STUDIES[name]
    return getattr(importlib.import_module(f"tools.studies.{module}"), attribute)
