"""What `tfrl doctor` tries of inlining: the compilers, and plugins for them."""

from __future__ import annotations

import pathlib
import shutil
import tempfile

from environments.errors import UserError
from environments.inlining.compilers.clang_probe import MINIMUM_VERSION, PROBE_IR, probe_clang
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.corpus.bitcode_compilers import find_compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.plugin.toolchain import MINIMUM_VERSION as PLUGIN_VERSION
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.training.system import Check

_CLANGS = ("clang", *(f"clang-{version}" for version in range(17, 24)))
_PROBE_TIMEOUT_S = 60.0


def checks() -> list[Check]:
    """See `System.checks`."""
    return [_embedded_llvm(), _embedded_clang(), *clangs(), *plugins()]


def _embedded_llvm() -> Check:
    name = "embedded LLVM"
    compiler = EmbeddedLlvm(_PROBE_TIMEOUT_S)
    try:
        with tempfile.TemporaryDirectory(prefix="tfrl-doctor-") as directory:
            path = pathlib.Path(directory) / "probe.ll"
            path.write_text(PROBE_IR)
            module = Module("probe", path, ".", "unknown")
            compiled = run_policy(compiler, module, lambda site: int(site.default))
            features = len(compiler.announced)
    except (UserError, OSError) as error:
        remedy = "install it again: pip install --force-reinstall llvmlite"
        return Check(name, False, True, str(error), remedy)
    finally:
        compiler.close()
    text = (
        f"compiles; asked for {len(compiled.decisions)} decisions with {features} features, "
        f"{compiled.size.text_bytes} bytes of text"
    )
    return Check(name, len(compiled.decisions) > 0, True, text)


def _embedded_clang() -> Check:
    name = "embedded clang"
    try:
        return Check(name, True, False, f"{find_compiler().version}: tfrl corpus build works")
    except UserError as error:
        remedy = "pip install ziglang, or give tfrl corpus build a clang by --compiler"
        return Check(name, False, False, str(error), remedy)


def clangs() -> list[Check]:
    """Check each clang on PATH."""
    checks = [_clang(name) for name in _CLANGS if shutil.which(name)]
    if checks:
        return checks
    remedy = f"none is needed; --compiler takes a clang of version {MINIMUM_VERSION} or newer"
    return [Check("clang", False, False, "none on PATH", remedy)]


def _clang(name: str) -> Check:
    try:
        facts = probe_clang(shutil.which(name) or name)
    except UserError as error:
        return Check(name, False, False, str(error), "use --compiler embedded, or another clang")
    text = f"version {facts.version}: asks for advice, {len(facts.announced)} features"
    if facts.announces_default:
        return Check(name, True, False, f"{text}, names callees: --compiler {name} works")
    remedy = (
        "features derived from callees' names are unknown to policies on this clang; a newer one, "
        "or --compiler embedded, has them"
    )
    return Check(name, True, False, f"{text}, its own default cannot be asked for", remedy)


def plugins() -> list[Check]:
    """Check for each clang on PATH that is new enough whether a plugin can be built for it."""
    return [
        _plugin(name)
        for name in _CLANGS
        if shutil.which(name) and (name == "clang" or int(name.split("-")[1]) >= PLUGIN_VERSION)
    ]


def _plugin(clang: str) -> Check:
    name = f"plugin for {clang}"
    try:
        toolchain = find_toolchain(clang)
    except UserError as error:
        text, _, remedy = str(error).rpartition("; ")
        return Check(name, False, False, text, remedy)
    text = f"headers in {toolchain.include}, built by {toolchain.compiler}: tfrl build works"
    return Check(name, True, False, text)
