"""Policies in the forms that others use: `tfrl export`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.compilers.clang_probe import PROBE_IR
from environments.inlining.compilers.compilation import DEFAULT_FEATURE
from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.features import DERIVED_FEATURES
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import Toolchain, find_toolchain
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

_TIMEOUT_S = 60.0


def export_plugin(name: str, clang: str, output: pathlib.Path) -> dict[str, Any]:
    """Write a policy as a pass plugin for a clang; return what `tfrl export --json` prints.

    Raises:
      UserError: the policy cannot be compiled in, headers or a compiler are missing, or the file
        cannot be written.
    """
    source = source_of(load_policy(name))
    files.check_place(output)
    toolchain = find_toolchain(clang)
    plugin = build_plugin(toolchain, source)
    _try(plugin, toolchain)
    files.replace(output, plugin.read_bytes(), 0o755)
    return {
        "policy": name,
        "format": "clang-plugin",
        "compiler": toolchain.facts.banner,
        "llvm": toolchain.major,
        "path": os.fspath(output),
        "size_bytes": output.stat().st_size,
    }


def export_mlgo(name: str, compiler: str, output: pathlib.Path) -> dict[str, Any]:
    """Write a policy as a model for LLVM's own modes; return what `tfrl export --json` prints.

    Args:
      name: a policy that bc_max learned, a directory.
      compiler: "embedded" or a clang, of the LLVM version that is to read the model.
      output: the directory to write.

    Raises:
      UserError: the policy needs features that LLVM's modes do not feed, it is none that bc_max
        learned, or the directory cannot be written.
    """
    from tfrl_systems.systems.inlining.policy.mlgo import save_mlgo

    policy = load_policy(name)
    if not isinstance(policy, CallSitePolicy):
        raise UserError(
            f"policy: expected one that bc_max learned, found {name!r}, for which there is no model"
        )
    model_compiler = make_compiler(compiler)
    names = [path for path in model_compiler.announced if path not in DERIVED_FEATURES]
    model_compiler.close()
    save_mlgo(output, policy, names)
    return {
        "policy": name,
        "format": "mlgo",
        "compiler": model_compiler.identity,
        "path": os.fspath(output),
        "features": [*names, DEFAULT_FEATURE],
        "size_bytes": sum(path.stat().st_size for path in output.rglob("*") if path.is_file()),
    }


def _try(plugin: pathlib.Path, toolchain: Toolchain) -> None:
    """Raise UserError unless the clang compiles with the plugin, and the plugin decides."""
    with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as scratch:
        directory = pathlib.Path(scratch)
        (directory / "probe.ll").write_text(PROBE_IR)
        log = directory / "log"
        command = [toolchain.clang, f"-fpass-plugin={plugin}", "-Oz", "-c", "-x", "ir", "probe.ll"]
        done = subprocess.run(
            [*command, "-o", "probe.o"],
            cwd=directory,
            env={**os.environ, "TFRL_INLINING_LOG": os.fspath(log), "TFRL_INLINING_MARGIN": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
        )
        log_text = log.read_text() if log.exists() else ""
    if done.returncode == 0 and '"steered":true' in log_text:
        return
    message = " ".join((done.stderr or log_text or "a clang that does not ask it").split())[:300]
    raise UserError(
        f"plugin: expected {toolchain.clang} to load it and to ask it, found: {message}; install "
        f"headers of that very LLVM (llvm-{toolchain.major}-dev), or name another clang"
    )
