"""Clangs that can be steered, for the tests of builds."""

from __future__ import annotations

import shutil

import pytest

from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import heuristic_source
from environments.inlining.plugin.toolchain import find_toolchain
from tests.environments.inlining.exploration.test_explore import SAVING
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    NO_CALL_SITES,
    many_calls,
    write_corpus,
)
from tests.requirements import skip_if
from tests.tfrl_systems.cli.small_project import (
    CLANGS,
    find_clang,
    need_any_clang,
    write_sources,
)


@pytest.fixture(scope="module")
def build_environment(plugin_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(plugin_cache))
        patch.delenv("CXX", raising=False)
        yield


@pytest.fixture(scope="module", params=[pytest.param(CLANGS[0], marks=pytest.mark.ci), CLANGS[1]])
def clang(request, build_environment):
    """Each of them, the older one in CI; its path."""
    path, missing = find_clang(request.param)
    skip_if(missing)
    return path


@pytest.fixture(scope="module")
def one_clang(build_environment):
    """Any of them: what is tested does not depend on its version."""
    return need_any_clang()


@pytest.fixture
def own_plugins(one_clang, plugin_cache, tmp_path, monkeypatch):
    """The plugins of `never`, in a cache of the test's own; the cache's directory."""
    build_plugin(find_toolchain(one_clang.replace("++", "")), heuristic_source("never"))
    cache = tmp_path / "my own cache"
    shutil.copytree(plugin_cache / "tfrl", cache / "tfrl")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Sources, in a current directory that is theirs; make optimises them for size."""
    sources = write_sources(tmp_path / "project")
    monkeypatch.chdir(sources)
    monkeypatch.setenv("CXXFLAGS", "-Oz")
    return sources


@pytest.fixture(scope="session")
def saving(lend):
    """A corpus in one module of which LLVM's own decisions can be bettered."""
    modules = {
        "alpha/saving.c": SAVING,
        "alpha/hand.c": HAND_WORKED,
        "alpha/none.c": NO_CALL_SITES,
        "beta/many.cc": many_calls(12),
    }
    return lend("saving corpus", lambda directory: write_corpus(directory, modules))


@pytest.fixture(autouse=True)
def _(no_saved_models, work_clock):
    """Nobody here reads the SavedModel; `tests/tfrl_systems/policies` does.

    What is really measured differs from machine to machine; `execution/test_measuring.py` does it.
    """
