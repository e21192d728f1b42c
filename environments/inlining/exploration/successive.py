"""Algorithm 3 of the BC-Max paper (Marinov et al., D.2), as it is printed.

π is the policy to explore around, π̂ the exploration policy, and s the call sites of a compile:

    compile with π, which gives the trajectory τ_1;  h_1 = argmin_h |π̂(s_h)(0) - π̂(s_h)(1)| on τ_1
    for t = 1 … T:
        replay τ_t before h_t, play 1 - π(s) at h_t, go on with π, which gives τ_{t+1}
        h_{t+1} = argmin over h > h_t of the same gap on τ_{t+1}; end where no site is left
    return the cheapest trajectory

So a flip stays in all later compiles, the gap is that of the newest trajectory, and sites are tried
in their order. `explore.py` tries each decision by itself instead, which tells what it is worth;
here nothing is known of single decisions.

The print never counts t on, and leaves ties open: here each compile counts, and the first of equal
gaps and of equal costs is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import ModuleStore, Trajectory
from environments.inlining.collection.variation import Variation
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.explore import Explore, Explored


@dataclasses.dataclass(frozen=True)
class ExploreSuccessively(Explore):
    """Exploration of one module by Algorithm 3, as a `tasks.Task`. Its `config` does not matter.

    Attributes:
      max_flips: T, by name of the module.
    """

    max_flips: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def run(self, compiler: Compiler, module: Module) -> Explored:
        """See `Task`; no Δbytes are known."""

        def follow(steps: frozenset[int]) -> Trajectory:
            compiled = compile_under(self.policy, compiler, module, Variation(steps=steps))
            return Trajectory.of(module, compiler, compiled)

        flips: list[int] = []
        trajectories = [follow(frozenset())]
        for _ in range(self.max_flips[module.name]):
            step = self._least_certain(trajectories[-1], flips[-1] + 1 if flips else 0)
            if step is None:
                break
            flips.append(step)
            trajectories.append(follow(frozenset(flips)))
        best = min(
            trajectories,
            key=lambda trajectory: self.objective.cost(module.project, trajectory.size),
        )
        return Explored(trajectories[0], np.empty(0, np.int64), np.empty(0), best)

    def _least_certain(self, trajectory: Trajectory, start: int) -> int | None:
        """Return the site from `start` on with the smallest gap; None if there is none."""
        assert self.certainty_fn is not None
        steps = np.arange(start, len(trajectory.decisions))
        if self.scope_feature:
            steps = steps[trajectory.column(self.scope_feature)[steps] == 1]
        if not len(steps):
            return None
        return int(steps[np.argmin(self.certainty_fn(trajectory.features[steps]))])

    def _request(self, module_store: ModuleStore) -> str:
        counted = self.objective.digest(module_store.project)
        max_flips = self.max_flips[module_store.module_name]
        what = f"{self.policy.fingerprint} {self.explorer} {max_flips}"
        return f"explore successively {what} {self.scope_feature} {counted}"
