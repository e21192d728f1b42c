"""One compile under a policy, with all that exploration needs to know about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from environments.inlining.collection.playing import compile_under
from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import POLICY_ALONE, SiteKey, Variation
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import read_function_bytes
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.linking.objective import OBJECT, Objective


@dataclasses.dataclass(frozen=True)
class DetailedCompile:
    """A compile under a policy, and what it costs.

    Attributes:
      trajectory: the T call sites, their decisions and the sizes of the object.
      keys: name of each of the T call sites; None if LLVM does not give it before the decision.
      cost: what the object costs, in bytes.
      function_bytes: the same by name of the function, without what functions share.
    """

    trajectory: Trajectory
    keys: tuple[SiteKey | None, ...]
    cost: float
    function_bytes: Mapping[str, float]


def compile_in_detail(
    compiler: Compiler,
    module: Module,
    policy: Policy,
    variation: Variation = POLICY_ALONE,
    objective: Objective = OBJECT,
) -> DetailedCompile:
    """Compile a module under a policy, except where `variation` says otherwise.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    played = compile_under(policy, compiler, module, variation)
    return DetailedCompile(
        played.trajectory,
        played.keys,
        objective.cost(module.project, played.trajectory.size),
        read_function_bytes(played.data, objective.of_project(module.project)),
    )
