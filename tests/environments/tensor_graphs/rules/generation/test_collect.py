"""Files of rules are made again from earlier ones."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.files import WRITTEN, RuleFile
from environments.tensor_graphs.rules.generation import generalise
from environments.tensor_graphs.rules.generation.collect import Thoroughness, make_rules
from environments.tensor_graphs.rules.language.rule import Rule

FEW = Thoroughness(20, (1,), 1)
MADE = {"stages": {}}


def make(target, *conditions):
    data = {"name": "rule", "source": ["(Neg (Neg ?x))"], "target": [target]}
    return Rule.from_dict({**data, "conditions": list(conditions)})


def test_the_conditions_of_an_earlier_file_are_believed_and_the_rule_is_not(monkeypatch):
    monkeypatch.setattr(generalise, "needs", lambda *_: pytest.fail("it looks for conditions"))
    earlier = RuleFile((make("?x"),), {"rule": WRITTEN}, MADE)
    file = make_rules([make("?x", "(>= (rank ?x) 0)")], earlier=earlier, thoroughness=FEW)
    (rule,) = file.rules
    assert rule.conditions == () and file.instances == {"rule": 20}
    assert file.provenance["stages"][WRITTEN]["conditions not needed"] == 1
    wrong = RuleFile((make("(Neg ?x)"),), {"rule": WRITTEN}, MADE)
    assert make_rules([make("(Neg ?x)")], earlier=wrong, thoroughness=FEW).rules == ()


def test_a_rule_that_was_changed_is_considered_anew():
    earlier = RuleFile((make("(Neg (Neg ?x))"),), {"rule": WRITTEN}, MADE)
    written = make("?x", "(>= (rank ?x) 0)")
    (rule,) = make_rules([written], earlier=earlier, thoroughness=FEW).rules
    assert rule.conditions == () and rule.target == written.target


def test_the_marks_are_in_the_file():
    file = make_rules([make("?x")], earlier=RuleFile((), {}, MADE), thoroughness=Thoroughness(60))
    (rule,) = file.rules
    assert rule.types == ("float", "signed")
    assert not rule.may_lose_digits and not rule.may_change_nonfinite
