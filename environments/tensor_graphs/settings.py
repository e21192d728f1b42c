"""Settings of `TensorGraphEnvironment`."""

from __future__ import annotations

import dataclasses

from environments.errors import UserError

SIZES = ("max_nodes", "max_edges", "max_locations", "max_actions")
"""The fields that say how large an observation is."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of `TensorGraphEnvironment`.

    Attributes:
      reward: what a step is paid for: how much less the "runtime" became (the thesis's R5), the
        "runtime_and_memory" (R1, R3 and R4 by their symbols), how much less than at the start the
        "new_runtime" is (R2), that of the last step alone ("terminal"), how much less the
        "least_runtime" of the episode became: that of the graph that one takes; or the sum of this
        and the first, "least_and_runtime".
      alpha: weight of the runtime in runtime_and_memory, and of the least one in the last.
      beta: weight of the memory that is accessed, and of the runtime, likewise.
      max_steps: steps that an episode has at most.
      may_stop: whether an episode may be ended by NO-OP while a rule matches. Where the best graph
        of an episode is what counts, stopping gains nothing, and it is the first thing that is
        learned where most steps make graphs dearer.
      masked: whether a policy sees what is allowed. Without, all of xfer_mask and location_masks is
        True, and a policy has to learn from the reward -100 what it cannot do.
      constants: whether weights and other constants are nodes that a policy sees. Without them
        graphs have half as many nodes; which inputs are constant is said of each node in any case.
      max_nodes: nodes of a graph that an observation has room for, a constant expression counted
        once; 0 where training finds it out, twice as many as the largest of its models has.
      max_edges: edges, likewise.
      max_locations: matches of one rule (thesis 3.2.3: 200); 0 where training finds it out, three
        times as many as there are at first.
      max_actions: matches of all rules, and NO-OP, likewise.
      truncate: whether what there is no room for is left out with a warning, instead of an error.
        In training it always is where all sizes were 0.
      measure_every: steps between measurements of the whole model; 0 for none.
    """

    reward: str = "runtime"
    alpha: float = 0.8
    beta: float = 0.2
    max_steps: int = 200
    may_stop: bool = True
    masked: bool = True
    constants: bool = True
    max_nodes: int = 1024
    max_edges: int = 1536
    max_locations: int = 200
    max_actions: int = 1024
    truncate: bool = False
    measure_every: int = 0

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
          UserError: one is too small.
        """
        for name, least in (("max_steps", 1), ("measure_every", 0), *((one, 0) for one in SIZES)):
            found = getattr(self, name)
            if found < least:
                raise UserError(f"{name}: expected {least} or more, found {found}; correct it")
