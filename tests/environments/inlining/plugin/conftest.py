"""What tests of plugins share."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

from environments.errors import UserError
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.toolchain import find_toolchain


@pytest.fixture
def toolchain(clang, plugin_cache, monkeypatch):
    """What plugins for the clang are built with, into one cache; its own headers must be there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    try:
        return find_toolchain(clang.executable)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def compile_steered(clang, toolchain, tmp_path):
    """Compiles a module by a plugin's source; returns the object, the log's line and stderr."""

    def compile_(module, source: str, **variables: str) -> tuple[bytes, dict, str]:
        log = pathlib.Path(tmp_path / "log")
        log.unlink(missing_ok=True)
        plugin = f"-fpass-plugin={build_plugin(toolchain, source)}"
        done = subprocess.run(
            [*clang.command(module)[:-1], str(tmp_path / "object.o"), plugin],
            env={**os.environ, "TFRL_INLINING_LOG": str(log), **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return (tmp_path / "object.o").read_bytes(), json.loads(log.read_text()), done.stderr

    return compile_
