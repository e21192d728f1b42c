"""Find the marks of a rule: what it may change although it is right as arithmetic."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification.digits import digit_loss
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer
from environments.tensor_graphs.rules.verification.nonfinite import nonfinite_change
from environments.tensor_graphs.rules.verification.type_trials import TypeTrials

_MAX_SHOWN = 300
_SETTINGS_PER_INSTANCE = 2


class Marks:
    """The marks of a rule, as far as the instances seen so far show them.

    Attributes:
      nonfinite_change: an instance in which the rule changes NaN or infinity; empty if none did.
      digit_loss: an instance in which the rule loses digits; empty if none did.
    """

    def __init__(self, rule: Rule, drawer: InstanceDrawer, seed: int) -> None:
        self.nonfinite_change = self.digit_loss = ""
        self._constants = rule.constants
        self._literals = drawer.literals
        self._nonfinite_rng, self._digits_rng, types_rng = (
            np.random.default_rng([seed, stream]) for stream in (4, 5, 6)
        )
        self._trials = TypeTrials(rule, drawer, types_rng)

    @property
    def types(self) -> tuple[str, ...]:
        """The groups of element types that the rule is right for."""
        return self._trials.types

    @property
    def problem(self) -> str:
        """An instance in which the rule is wrong; empty if none showed up."""
        return self._trials.problem_of_floats[:_MAX_SHOWN]

    def add(self, instance: Instance) -> None:
        """Look at an instance to which the rule applies."""
        self._trials.test(instance)
        if not self.nonfinite_change:
            change = nonfinite_change(instance, self._constants, self._nonfinite_rng)
            self.nonfinite_change = change and f"{instance}: {change}"[:_MAX_SHOWN]
        for _ in range(_SETTINGS_PER_INSTANCE):
            if self.digit_loss:
                break
            loss = digit_loss(instance, self._literals, self._digits_rng)
            self.digit_loss = "" if loss is None else f"{instance}: {loss}"[:_MAX_SHOWN]
