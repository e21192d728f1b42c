"""BC-Max's view of a corpus: what cannot be linked is said, and said once."""

from __future__ import annotations

from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.corpus.modules import Corpus
from environments.inlining.exploration.explore import ExplorationConfig
from environments.inlining.heuristics import Default
from environments.inlining.linking.objective import OBJECT
from tests.environments.inlining.small_modules import many_calls, write_corpus
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem
from tfrl_systems.systems.inlining.workers import make_collector

# A version that no script defines: a real linker refuses it.
UNLINKABLE = many_calls(3) + '\nmodule asm ".globl of_version"\nmodule asm "of_version:"'
UNLINKABLE += '\nmodule asm ".symver of_version, function@@MISSING_1"\n'


def test_a_project_that_cannot_be_linked_is_named_once(tmp_path):
    write_corpus(tmp_path, {"good/a.c": many_calls(4), "refused/b.c": UNLINKABLE})
    modules = Corpus.load(tmp_path).modules
    said = []
    with make_collector("embedded", TrajectoryStore(), Collect()) as collector:
        problem = InliningProblem(
            collector,
            modules,
            ExplorationConfig(),
            lambda: OBJECT,
            lambda label, total: lambda done: None,
        )
        for _ in range(2):
            assert problem.link(Default(), "default").keys() == {"good"}
            problem.tell_failures(said.append)
    (message,) = said
    assert message.startswith("not linked: refused.image: expected objects that can be linked")
    assert "MISSING_1" in message and not problem.failures
