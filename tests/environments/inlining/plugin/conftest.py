"""What tests of plugins share."""

from __future__ import annotations

import json
import os
import subprocess
from typing import NamedTuple

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import Module
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import heuristic_source
from environments.inlining.plugin.toolchain import find_toolchain
from tests.environments.inlining.small_modules import write_module


@pytest.fixture
def toolchain(clang, plugin_cache, monkeypatch):
    """What plugins for the clang are built with, into one cache; its own headers must be there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    try:
        return find_toolchain(clang.executable)
    except UserError as error:
        pytest.skip(str(error))


class Compiled(NamedTuple):
    """An object, what the plugin tells of its compile ({} for nothing), and stderr."""

    data: bytes
    log: dict
    stderr: str


@pytest.fixture
def compile_by(clang, toolchain, tmp_path):
    """Compiles a module or IR by a policy: a heuristic's name or a source, "" for plain LLVM."""

    def compile_(module: Module | str, policy: str, *options: str, **variables: str) -> Compiled:
        if isinstance(module, str):
            module = write_module(tmp_path, "module", module, text=True)
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        command = [*clang.command(module)[:-1], str(tmp_path / "object.o"), *options]
        if policy:
            source = policy if "\n" in policy else heuristic_source(policy)
            command.append(f"-fpass-plugin={build_plugin(toolchain, source)}")
        environment = {**os.environ, "TFRL_INLINING_LOG": str(log), **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and ("MARGIN" in done.stderr or not done.stderr), done.stderr
        line = json.loads(log.read_text()) if log.exists() else {}
        return Compiled((tmp_path / "object.o").read_bytes(), line, done.stderr)

    return compile_
