"""The drawing of the house in words: which room may import which, and what each may use.

`house_rules` reads it. A new room is entered here first.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

_ENVIRONMENTS = pathlib.Path(__file__).parent.parent / "environments"
SYSTEMS = {"inlining", "tensor_graphs", "learn_to_optimize"} | {
    path.parent.name for path in _ENVIRONMENTS.glob("*/environment.py")
}

_LEARNING = frozenset({"agents", "drivers", "episodes", "networks", "policies", "world_models"})
_TOLD = frozenset({"cpu_time", "reporting", "settings"})
# room of tfrl_systems -> the other rooms that it may import. A new room is entered here first.
ARROWS: Mapping[str, frozenset[str]] = {
    "": frozenset({"neighbour"}),  # the package itself
    **dict.fromkeys(("neighbour", "cpu_time", "reporting", "settings", "episodes"), frozenset()),
    "networks": frozenset({"episodes"}),
    "agents": frozenset({"episodes", "networks", "policies", "world_models"}),
    "world_models": frozenset({"episodes", "networks"}),
    "policies": frozenset({"episodes", "networks"}),
    "drivers": frozenset({"episodes", "policies"}),
    "training": _LEARNING | _TOLD,
    "systems": _LEARNING | _TOLD | {"training"},
    "experiments": _LEARNING | _TOLD | {"systems", "training"},
    "cli": _TOLD | {"agents", "drivers", "experiments", "systems", "training"},
}

# The same inside each system that has rooms. A dot in a room's name says that each folder and file
# of the outer folder (rules/) is a room of its own.
_COMPILERS = frozenset({"corpus", "compilers"})
_COLLECTION = _COMPILERS | {"collection", "features", "heuristics", "plugin"}
_GRAPHS = frozenset({"graph", "operators"})
_LANGUAGE = _GRAPHS | {"rules.language"}
_REWRITING = _LANGUAGE | {"rewriting"}
_COSTS = _GRAPHS | {"onnx_io", "execution", "costs"}
SYSTEM_ARROWS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "inlining": {
        "corpus": frozenset(),
        "compilers": frozenset({"corpus"}),
        "features": frozenset({"compilers"}),
        "heuristics": frozenset(),
        "function_credit": frozenset({"compilers"}),
        "collection": _COLLECTION,
        "linking": _COLLECTION,
        "plugin": _COMPILERS | {"heuristics"},
        "exploration": _COLLECTION | {"linking", "function_credit"},
        "environment": _COLLECTION | {"linking", "function_credit"},
        "factory": _COLLECTION | {"environment", "linking"},
    },
    "tensor_graphs": {
        "graph": frozenset(),
        "operators": frozenset({"graph"}),
        "onnx_io": _GRAPHS,
        "models": frozenset({"onnx_io"}),
        "model": _GRAPHS | {"models", "onnx_io"},
        "rules.language": _GRAPHS,
        "rules.library": _LANGUAGE,
        "rules.verification": _LANGUAGE,
        "rules.files": _LANGUAGE | {"rules.library", "rules.verification"},
        "rules.generation": _REWRITING | {"rules.files", "rules.verification"},
        "rules.taso": _LANGUAGE | {"rules.generation", "rules.verification"},
        "rewriting": _LANGUAGE,
        "execution": _GRAPHS | {"onnx_io"},
        "costs": _COSTS,
        "settings": frozenset(),
        "observation": _REWRITING | {"costs", "execution", "settings"},
        "search": _REWRITING | {"costs", "rules.files"},
        "bound": _REWRITING,
        "rewards": _COSTS,
        "episode": _REWRITING | _COSTS | {"model", "observation", "settings"},
        "environment": _REWRITING
        | _COSTS
        | {"episode", "model", "observation", "rewards", "rules.files", "settings"},
        "factory": frozenset({"costs", "environment", "model", "rewriting", "settings"}),
        "selection": _REWRITING | _COSTS | {"rules.library", "search"},
    },
}

# Of tfrl_systems these alone import systems; the others may import what knows no system.
TOP_ROOMS = ("systems", "experiments", "cli")
_SHARED = ("credit", "errors", "files", "machine", "stack")
SHARED_MODULES = tuple(f"environments.{name}" for name in _SHARED)

# What environments may import of TensorFlow and of all that brings TensorFlow along.
TENSORFLOW_PACKAGES = (
    "graph_nets",
    "keras",
    "sonnet",
    "tensorboard",
    "tensorflow",
    "tensorflow_probability",
    "tf_agents",
    "tf_keras",
)
TENSORFLOW_ALLOWED = (
    "tf_agents.environments.py_environment",
    "tf_agents.specs",
    "tf_agents.trajectories",
    "tf_agents.typing",
)
# The contract test that is shipped runs TF-Agents' own validation.
TENSORFLOW_ALLOWED_IN = {"environments/testing.py": ("tf_agents.environments.utils",)}

PICKLERS = ("_pickle", "cloudpickle", "dill", "joblib", "pickle", "shelve")
# What a pool and its own workers say to each other; a caller's function on its way to its process.
_OF_FUNCTIONS = [f"environments/learn_to_optimize/{n}.py" for n in ("isolated", "function_server")]
PICKLING_ALLOWED = ("tfrl_systems/drivers/pipes/messages.py", *_OF_FUNCTIONS)

MAX_FILE_LINES = 399
MAX_FUNCTION_LINES = 49

SCRIPTS = ("tools/", "notebooks/")
PRINTING_ALLOWED = ("tfrl_systems/cli/", "tools/")
