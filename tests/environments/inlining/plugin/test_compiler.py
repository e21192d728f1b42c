"""A clang with a policy inside gives what its channel gives: features, decisions, names, bytes."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.variation import Variation, site_keys
from environments.inlining.compilers.compilation import CompiledModule, CompilerError
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.explore import ExplorationConfig, Explore
from environments.inlining.heuristics import make_heuristic
from environments.inlining.plugin.compiler import PluginClang
from tests.environments.inlining.plugin.samples import samples_of
from tests.environments.inlining.small_modules import HAND_WORKED, NOTHING, Replay, write_module

# One clang plays by all policies, the other, in CI, by one that looks at a feature.
CLANGS_AND_POLICIES = (
    ("clang-22", "default"),
    ("clang-22", "never"),
    ("clang-22", "cost<-20"),
    pytest.param("clang-19", "cost<-20", marks=pytest.mark.ci),
)


@pytest.fixture
def inside(toolchain, monkeypatch):
    compiler = PluginClang(toolchain, timeout_s=60)
    # Fails if the channel is used where it need not be.
    monkeypatch.setattr(compiler, "compile", None)
    yield compiler
    compiler.close()


@pytest.fixture
def samples(clang, lend):
    """Modules by name."""
    return samples_of(clang, lend)


def assert_same(compiled: CompiledModule, expected: CompiledModule) -> None:
    assert compiled.features.tolist() == expected.features.tolist()
    assert compiled.decisions.tolist() == expected.decisions.tolist()
    assert compiled.size == expected.size
    assert compiled.names == expected.names
    assert compiled.data == expected.data


@pytest.mark.parametrize(("clang", "name"), CLANGS_AND_POLICIES, indirect=["clang"])
def test_a_compile_is_the_channels(clang, inside, samples, name):
    policy, compared = make_heuristic(name), 0
    for module in samples.values():
        compiled = compile_under(policy, inside, module)
        assert_same(compiled, compile_under(policy, clang, module))
        compared += len(compiled.names)
    assert compared > 500


def variations(base: CompiledModule) -> list[Variation]:
    keys = site_keys(base.names)
    named = [key for key in keys if key is not None]
    unnamed = [step for step, key in enumerate(keys) if key is None]
    callers = sorted({key[0] for key in named})
    return [
        Variation(flips=frozenset(named[::3])),
        Variation(flips=frozenset(named[1::4]), restored=frozenset(callers[::2])),
        Variation(callees=frozenset((key[1], step % 2) for step, key in enumerate(named[::5]))),
        *(Variation(steps=frozenset({step})) for step in unnamed[:1]),
        Variation(steps=frozenset(range(1, len(keys), 5))),
    ]


@pytest.mark.ci
def test_so_is_one_that_does_not_follow_the_policy_everywhere(clang, inside, samples):
    policy, num_changed = make_heuristic("cost<-20"), 0
    # The large one by one clang alone.
    names = ("odd", "mixed", "cpp") if clang.name == "clang-22" else ("odd", "mixed")
    for module in map(samples.get, names):
        base = compile_under(policy, inside, module)
        for variation in variations(base):
            compiled = compile_under(policy, inside, module, variation)
            assert_same(compiled, compile_under(policy, clang, module, variation))
            num_changed += compiled.data != base.data
    assert num_changed > 5


@pytest.mark.ci
@pytest.mark.parametrize(
    ("clang", "name"), [("clang-22", "cpp"), ("clang-19", "mixed")], indirect=["clang"]
)
def test_exploration_finds_the_same(clang, inside, samples, name):
    # One round of each kind, and two of single changes.
    config = ExplorationConfig(num_rounds=2, joint_rounds=1, callee_rounds=1, refusals=1)
    task = Explore(make_heuristic("default"), config)
    module = samples[name]
    explored, expected = task.run(inside, module), task.run(clang, module)
    assert explored.steps.tolist() == expected.steps.tolist() and len(explored.steps)
    np.testing.assert_array_equal(explored.deltas, expected.deltas)
    assert explored.best.decisions.tolist() == expected.best.decisions.tolist()


def test_a_module_without_calls_and_a_policy_that_cannot_be_inside(
    clang, inside, tmp_path, monkeypatch
):
    nothing = write_module(tmp_path, "nothing", NOTHING, text=True)
    never, replay = make_heuristic("never"), Replay([1, 0, 1])
    assert_same(compile_under(never, inside, nothing), compile_under(never, clang, nothing))
    monkeypatch.setattr(inside, "compile", clang.compile)
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    assert_same(compile_under(replay, inside, module), compile_under(replay, clang, module))


def test_a_compile_that_fails_is_told_like_the_channels(inside, tmp_path):
    damaged = tmp_path / "damaged.bc"
    damaged.write_bytes(b"BC\xc0\xde" + bytes(40))
    with pytest.raises(CompilerError, match="damaged: expected an object, found that clang"):
        compile_under(make_heuristic("never"), inside, Module("damaged", damaged, ".", "c++"))
