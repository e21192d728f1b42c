"""The inlining environment: its contract, one episode by hand, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

import environments
from environments import contexts
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.corpus.modules import Module
from environments.inlining.environment import InliningEnvironment, relative_saving
from environments.inlining.features import DERIVED_FEATURES
from environments.testing import EnvironmentContractTest
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    NO_CALL_SITES,
    NOTHING,
    UNREACHABLE_CALL_SITE,
    Lent,
    many_calls,
    write_module,
    youngest_compiler,
)


class TestInliningContract(EnvironmentContractTest):
    @pytest.fixture(autouse=True)
    def modules(self, embedded, tmp_path):
        irs = {"hand": HAND_WORKED, "none": NO_CALL_SITES, "few": many_calls(3), "data": NOTHING}
        self.modules = [write_module(tmp_path, name, ir) for name, ir in irs.items()]

    def make_environment(self, seed):
        return InliningEnvironment(contexts.uniform(self.modules), seed=seed)


@pytest.fixture
def make_environment(embedded, tmp_path):
    """Makes environments of modules m0, m1, … that share the processes of a compiler."""
    environments = []

    def make(*irs: str, **settings) -> InliningEnvironment:
        modules = [write_module(tmp_path, f"m{number}", ir) for number, ir in enumerate(irs)]
        settings = {"compiler": Lent(embedded), **settings}
        environments.append(InliningEnvironment(contexts.sequential(modules), **settings))
        return environments[-1]

    yield make
    for environment in environments:
        environment.close()


def play_episode(environment, decisions) -> list:
    steps = [environment.reset()]
    for decision in decisions:
        steps.append(environment.step(np.array(decision, np.int64)))
    return steps


def test_in_a_scope_only_its_refused_calls_are_steps(make_environment):
    """leaf is called three times, and LLVM inlines none; all else is decided as LLVM does."""
    environment = make_environment(HAND_WORKED, scope_feature="callee_is_local")
    steps = play_episode(environment, [0, 0, 0])
    assert [int(step.observation["decisions_so_far"]) for step in steps] == [0, 1, 3, 0]
    assert steps[-1].is_last() and steps[-1].reward == 0, "the decisions are LLVM's own"
    refused = environment.get_credit()
    assert refused.parts == [{"caller", "leaf"}, {"caller", "leaf"}, {"other", "leaf"}]
    assert set(refused.values) == {"caller", "leaf", "other", ""}
    # The third call is the last one now, and LLVM inlines it.
    assert play_episode(environment, [1, 1])[-1].is_last()
    inlined = environment.get_credit()
    assert "leaf" not in inlined.values, "it has no call left"
    assert inlined.values["caller"] < refused.values["caller"] < 0
    assert inlined.parts == refused.parts[:2]
    # Without calls in the scope there is no step.
    environment = make_environment(HAND_WORKED, scope_feature="callee_is_linkonce")
    first, last = play_episode(environment, [1])
    assert first.is_first() and last.is_last() and last.reward == 0
    assert environment.get_credit().parts == []


def test_one_episode_by_hand(make_environment, embedded, tmp_path):
    environment = make_environment(HAND_WORKED)
    names = set(environment.observation_spec())
    assert {"cost_estimate", "callee_basic_block_count", *DERIVED_FEATURES} <= names
    steps = play_episode(environment, [0, 0, 0, 0, 0])
    assert all(set(step.observation) == names for step in steps)
    assert [int(step.step_type) for step in steps] == [0, 1, 1, 1, 1, 2]
    assert [float(step.discount) for step in steps] == [1, 1, 1, 1, 1, 0]
    defaults = [int(step.observation["inlining_default"]) for step in steps]
    assert defaults == [*HAND_WORKED_DEFAULT, 0]
    assert [int(step.observation["decisions_so_far"]) for step in steps] == [0, 1, 2, 3, 4, 0]
    # LLVM inlines the third call site, after which its callee goes; here both call and callee stay.
    module = Module("m0", tmp_path / "m0.bc", ".", "c")
    default = run_policy(embedded, module, lambda site: site.default).size
    never = run_policy(embedded, module, lambda site: 0).size
    assert never.text_bytes > default.text_bytes
    expected = (default.text_bytes - never.text_bytes) / default.text_bytes
    assert [float(step.reward) for step in steps] == [0] * 5 + [np.float32(expected)]
    assert environment.get_info() == {
        "context": "m0",
        "size_bytes": never.text_bytes,
        "default_size_bytes": default.text_bytes,
        "exec_bytes": never.exec_bytes,
        "default_exec_bytes": default.exec_bytes,
        "cost_bytes": never.text_bytes,
        "default_cost_bytes": default.text_bytes,
        "decisions": 5,
    }


@pytest.mark.parametrize("ir, size_bytes", [(NO_CALL_SITES, None), (NOTHING, 0)])
def test_a_module_without_call_sites_is_two_time_steps(make_environment, ir, size_bytes):
    environment = make_environment(ir)
    first, last = play_episode(environment, [1])
    assert first.is_first() and last.is_last()
    assert all(value == 0 for value in first.observation.values())
    assert last.reward == 0 and last.discount == 0
    info = environment.get_info()
    assert info["decisions"] == 0 and info["size_bytes"] == info["default_size_bytes"]
    assert size_bytes is None or info["size_bytes"] == size_bytes
    assert relative_saving(8, 0) == 0, "nothing is saved of nothing"


def test_the_default_is_compiled_once_for_each_module(make_environment, embedded):
    counted = []

    class Counting(Lent):
        def compile_plain(self, module):
            counted.append(module.name)
            return embedded.compile_plain(module)

    environment = make_environment(HAND_WORKED, many_calls(4), compiler=Counting(embedded))
    for _ in range(3):
        play_episode(environment, [0] * 5)
        play_episode(environment, [0] * 4)
    assert counted == ["m0", "m1"]


@pytest.mark.parametrize("action", [2, -1])
def test_an_action_that_is_none_is_refused_and_changes_nothing(make_environment, action):
    environment = make_environment(HAND_WORKED)
    environment.reset()
    with pytest.raises(ValueError, match=f"action: expected 0 or 1, found {action}"):
        environment.step(np.array(action))
    rest = [environment.step(np.array(decision)) for decision in HAND_WORKED_DEFAULT]
    assert rest[-1].is_last() and rest[-1].reward == 0


def test_a_compiler_killed_in_the_middle_is_brought_back_to_the_same_site(
    make_environment, monkeypatch
):
    undisturbed = play_episode(make_environment(many_calls(8)), [0, 1] * 4)
    environment = make_environment(many_calls(8))
    steps = play_episode(environment, [0, 1, 0])
    youngest_compiler().kill()
    steps += [environment.step(np.array(decision)) for decision in [1, 0, 1, 0, 1]]
    assert len(steps) == len(undisturbed)
    for step, expected in zip(steps, undisturbed, strict=True):
        assert step.observation == expected.observation and step.reward == expected.reward
    # One that dies every time is one line, and the next episode runs.
    monkeypatch.setattr("environments.inlining.environment._MAX_ATTEMPTS", 1)
    play_episode(environment, [0, 0])
    youngest_compiler().kill()
    with pytest.raises(CompilerError, match="m0: expected an object, found that .* signal 9"):
        for _ in range(4):
            environment.step(np.array(0))
    assert play_episode(environment, [0] * 8)[-1].is_last()


def test_a_module_that_always_fails_is_one_line_and_the_next_episode_runs(embedded, tmp_path):
    broken = Module("broken", tmp_path / "broken.bc", ".", "c")
    broken.path.write_bytes(b"BC\xc0\xde broken")
    good = write_module(tmp_path, "good", HAND_WORKED)
    sampler = contexts.sequential([good, broken])
    with InliningEnvironment(sampler, Lent(embedded)) as environment:
        play_episode(environment, [0] * 5)
        with pytest.raises(CompilerError, match="^broken: expected bitcode") as caught:
            environment.reset()
        assert "\n" not in str(caught.value)
        assert environment.step(np.array(0)).is_first()  # good again
        assert environment.step(np.array(0)).is_mid()


def test_close_in_the_middle_of_an_episode_ends_the_compiler(make_environment):
    environment = make_environment(many_calls(6), compiler=EmbeddedLlvm())
    play_episode(environment, [0, 0])
    process = youngest_compiler()
    environment.close()
    assert not process.is_running()
    assert environment.step(np.array(0)).is_first()


def test_make(tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED)
    with environments.make("inlining", sampler=contexts.uniform([module])) as environment:
        assert isinstance(environment, InliningEnvironment)
        assert environment.reset().is_first()


def test_savings_are_measured_against_a_plain_compile(make_environment, embedded, tmp_path):
    """In this module LLVM's own decisions, given as answers, come to another object."""
    environment = make_environment(UNREACHABLE_CALL_SITE)
    *_, last = play_episode(environment, [1, 1])
    plain = embedded.compile_plain(Module("m0", tmp_path / "m0.bc", ".", "c")).size.text_bytes
    info = environment.get_info()
    assert info["default_size_bytes"] == plain != info["size_bytes"]
    assert last.reward == np.float32((plain - info["size_bytes"]) / plain)
