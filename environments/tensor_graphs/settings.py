"""Settings of `TensorGraphEnvironment`."""

from __future__ import annotations

import dataclasses

from environments.errors import UserError

SIZES = ("max_nodes", "max_edges", "max_locations", "max_actions")
"""The fields that set how large an observation is."""

SHOWN_COSTS = ("objective", "roofline")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of `TensorGraphEnvironment`.

    Attributes:
      reward: what a step is rewarded for. "runtime" (the thesis's R5): how much the step reduced
        the runtime. "runtime_and_memory" (R1, R3 or R4, each with its own weights): how much it
        reduced the runtime and the memory accessed. "new_runtime" (R2): how much lower the runtime
        is than at the start. "terminal": the same, for the last step only. "least_runtime": how
        much the step reduced the lowest runtime of the episode. "least_and_runtime": the sum of
        least_runtime and a bounded runtime.
      alpha: weight of the runtime in runtime_and_memory; of least_runtime in least_and_runtime.
      beta: weight of the memory in runtime_and_memory; of the runtime in least_and_runtime.
      max_steps: largest number of steps in an episode.
      may_stop: whether NO-OP may end an episode while a rule still matches. If the best graph of an
        episode is what counts, stopping gains nothing. Yet a policy learns to stop first of all if
        most steps increase the cost.
      masked: whether a policy sees which actions are allowed. If not, xfer_mask and location_masks
        are True everywhere and no actions are listed, so a policy chooses among the numbers of all
        rules and locations (head "hierarchical") and learns what is allowed from the reward -100.
      constants: whether a policy sees weights and other constants as nodes. Graphs without them
        have about half as many nodes. The features of a node say which inputs are constant anyway.
      max_nodes: largest number of nodes that an observation has room for; a constant expression
        counts as one. With 0, training chooses twice the number of its largest model.
      max_edges: largest number of edges; 0 as for max_nodes.
      max_locations: largest number of matches of one rule (200 in the thesis, 3.2.3). With 0,
        training chooses three times the number in the models before any step.
      max_actions: largest number of matches of all rules, plus NO-OP; 0 as for max_locations.
      truncate: whether to leave out what does not fit, with a warning, instead of an error.
        Training always does so if all four sizes are 0.
      measure_every: number of steps between measurements of the whole model; 0 for none.
      patience: number of steps without a cheaper graph than all before after which an episode ends;
        0 for no such end.
      shown_costs: the costs that a policy sees: "objective" for those of the objective, or
        "roofline" for what the work of an operator takes at best, which needs no measurement. With
        the latter a policy that learned from measured costs knows them where nothing is measured.
      random_steps: largest number of random steps that are taken before an episode begins; how many
        is drawn from 0 on. Rewards count from the graph that they lead to.
    """

    reward: str = "runtime"
    alpha: float = 0.8
    beta: float = 0.2
    max_steps: int = dataclasses.field(default=200, metadata={"minimum": 1})
    may_stop: bool = True
    masked: bool = True
    constants: bool = True
    max_nodes: int = 1024
    max_edges: int = 1536
    max_locations: int = 200
    max_actions: int = 1024
    truncate: bool = False
    measure_every: int = 0
    patience: int = 0
    shown_costs: str = "objective"
    random_steps: int = 0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
          UserError: a number is too small.
        """
        if self.shown_costs not in SHOWN_COSTS:
            raise UserError(
                f"shown_costs: expected {' or '.join(SHOWN_COSTS)}, found {self.shown_costs!r}; "
                "correct it"
            )
        counts = ("measure_every", "patience", "random_steps", *SIZES)
        for name, least in (("max_steps", 1), *((count, 0) for count in counts)):
            number = getattr(self, name)
            if number < least:
                raise UserError(f"{name}: expected {least} or more, found {number}; correct it")
