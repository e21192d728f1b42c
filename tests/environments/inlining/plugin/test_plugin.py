"""A clang with a policy inside: it decides by the policy, and leaves alone what it must."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import Module
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import PolicySource, heuristic_source
from environments.inlining.plugin.toolchain import find_toolchain
from tests.environments.inlining.plugin.samples import MIXED, samples_of
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    write_module,
)


@pytest.fixture(scope="module")
def plugins(plugin_cache):
    """Builds plugins into one cache; a test must name the clang's own headers to get one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(plugin_cache))

        def build(clang, source: PolicySource | str) -> pathlib.Path:
            try:
                toolchain = find_toolchain(clang.executable)
            except UserError as error:
                pytest.skip(str(error))
            if isinstance(source, str):
                source = heuristic_source(source)
            return build_plugin(toolchain, source)

        yield build


def compile_with(
    clang, module: Module, plugin: pathlib.Path | None, out: pathlib.Path, *options: str
) -> tuple[bytes, list[dict]]:
    """Return the object, and what the plugin tells."""
    log = out / "log"
    log.unlink(missing_ok=True)
    command = [*clang.command(module)[:-1], str(out / "object.o"), *options]
    if plugin is not None:
        command.append(f"-fpass-plugin={plugin}")
    environment = {**os.environ, "TFRL_INLINING_LOG": str(log)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = log.read_text().splitlines() if log.exists() else []
    return (out / "object.o").read_bytes(), [json.loads(line) for line in lines]


def test_what_was_decided_is_told(clang, plugins, tmp_path):
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    for name, departures in (("default", 0), ("never", sum(HAND_WORKED_DEFAULT))):
        _, (log,) = compile_with(clang, module, plugins(clang, name), tmp_path)
        assert log["steered"] and log["decisions"] == len(HAND_WORKED_DEFAULT)
        assert log["departures"] == departures and log["policy_ns"] > 0


def test_llvms_own_decisions_give_llvms_own_objects(clang, plugins, lend, tmp_path):
    plugin = plugins(clang, "default")
    for module in samples_of(clang, lend).values():
        plain, nothing = compile_with(clang, module, None, tmp_path)
        steered, (log,) = compile_with(clang, module, plugin, tmp_path)
        assert nothing == [] and log["decisions"] > 0
        assert steered == plain, module.name


def test_only_functions_optimised_for_size_are_steered(clang, plugins, tmp_path):
    plugin = plugins(clang, "always")
    mixed = write_module(tmp_path, "mixed", MIXED, text=True)
    _, (log,) = compile_with(clang, mixed, plugin, tmp_path)
    # HAND_WORKED's five sites and those that inlining makes, but none of @fast.
    plain = write_module(tmp_path, "plain", HAND_WORKED, text=True)
    _, (alone,) = compile_with(clang, plain, plugin, tmp_path)
    assert log["decisions"] == alone["decisions"] >= len(HAND_WORKED_DEFAULT)

    fast = write_module(tmp_path, "fast", HAND_WORKED.replace("minsize optsize", ""), text=True)
    for level in ("-O0", "-O2", "-Os"):
        without, _ = compile_with(clang, fast, None, tmp_path, level)
        steered, (log,) = compile_with(clang, fast, plugin, tmp_path, level)
        assert steered == without
        assert not log["steered"] and log["reason"] == "no function is optimised for size (-Oz)"


def test_growth_is_not_limited_as_in_training(clang, plugins, tmp_path):
    """LLVM's advisor would stop once the module has doubled, and refuse the rest."""
    lines = "".join(f"  call void @sink(i32 {k})\n" for k in range(30))
    calls = "".join("  call void @large()\n" for _ in range(20))
    ir = (
        "declare void @sink(i32)\n"
        f"define void @large() minsize optsize {{\n{lines}  ret void\n}}\n"
        f"define void @all() minsize optsize {{\n{calls}  ret void\n}}\n"
    )
    module = write_module(tmp_path, "growing", ir, text=True)
    _, (log,) = compile_with(clang, module, plugins(clang, "always"), tmp_path)
    assert log["decisions"] == 20
    limit = ("-mllvm", "-ml-advisor-size-increase-threshold=2")
    _, (log,) = compile_with(clang, module, plugins(clang, "always"), tmp_path, *limit)
    assert 0 < log["decisions"] < 20  # whoever gives the option is obeyed


def test_a_feature_that_this_llvm_lacks_means_llvms_own_decisions(clang, plugins, tmp_path):
    source = heuristic_source("cost<-20")
    odd = PolicySource("odd", source.text.replace("cost_estimate", "no_such_feature"))
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    plain, _ = compile_with(clang, module, None, tmp_path)
    steered, (log,) = compile_with(clang, module, plugins(clang, odd), tmp_path)
    assert steered == plain
    assert not log["steered"] and log["reason"] == "this clang has no no_such_feature"


def test_a_file_that_cannot_be_written_does_not_end_a_compile(clang, plugins, tmp_path):
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    command = [*clang.command(module)[:-1], str(tmp_path / "object.o")]
    command.append(f"-fpass-plugin={plugins(clang, 'never')}")
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    for place in ("/no/such/directory/log", str(tmp_path / "link")):
        environment = {**os.environ, "TFRL_INLINING_LOG": place, "TFRL_INLINING_ROWS": place}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert not target.exists()  # links are not followed
