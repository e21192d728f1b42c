"""The environments as Gymnasium's (an extra: pip install tfrl-systems[gymnasium]).

Importing this package registers them (Gymnasium 1.0 has no plug-ins that are found by themselves),
and so does a name with the package before it::

    import gymnasium
    import environments.gymnasium

    gymnasium.make("tfrl/Inlining-v0", corpus="runs/mine")
    gymnasium.make("tfrl/TensorGraphs-v0", models=["bert-tiny"])
    gymnasium.make_vec("tfrl/LearnToOptimize-v0", num_envs=64, function="shifted_ackley")
    gymnasium.make("environments.gymnasium:tfrl/TensorGraphs-v0")  # without the second import

Other arguments are those of `environments.make`. What there is to see and to do is described in
`environment.SystemEnvironment`.
"""

from __future__ import annotations

import gymnasium

# The name of each environment, and the system's; what `make` is told where a user says nothing.
NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "tfrl/Inlining-v0": ("inlining", {}),
    "tfrl/TensorGraphs-v0": ("tensor_graphs", {"models": "bert-tiny", "objective": "analytic"}),
    "tfrl/LearnToOptimize-v0": ("learn_to_optimize", {}),
}


def register() -> None:
    """Register the environments; they are imported only when one is made."""
    module = "environments.gymnasium.environment"
    for name, (system, usual) in NAMES.items():
        if name in gymnasium.registry:
            continue
        batched = system == "learn_to_optimize"
        gymnasium.register(
            name,
            f"{module}:SystemEnvironment",
            vector_entry_point=f"{module}:BatchedEnvironment" if batched else None,
            kwargs={"system": system, **usual},
        )


register()
