"""A clang with a policy inside: it decides by the policy, and leaves alone what it must."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import heuristic_source
from tests.environments.inlining.plugin.samples import MIXED, samples_of
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    SINK,
    function,
    sinks,
)


def test_llvms_own_decisions_give_llvms_own_objects(clang, compile_by, lend):
    for module in samples_of(clang, lend).values():
        plain, steered = compile_by(module, ""), compile_by(module, "default")
        assert plain.log == {} and steered.log["steered"]
        assert steered.log["decisions"] > steered.log["departures"] == 0
        assert steered.data == plain.data, module.name


def test_only_functions_optimised_for_size_are_steered(compile_by):
    # HAND_WORKED's five sites and those that inlining makes, but none of @fast.
    mixed, alone = compile_by(MIXED, "always").log, compile_by(HAND_WORKED, "always").log
    assert mixed["decisions"] == alone["decisions"] >= len(HAND_WORKED_DEFAULT)

    # CMake's MinSizeRel is -Os.
    no_size = "no function is optimised for size (-Oz)"
    use_oz = (
        "compiled with -Os, and only -Oz is decided: cmake -DCMAKE_C_FLAGS_MINSIZEREL='-Oz "
        "-DNDEBUG' -DCMAKE_CXX_FLAGS_MINSIZEREL='-Oz -DNDEBUG'"
    )
    for level, attributes, reason in (
        ("-O0", "", no_size),
        ("-O2", "", no_size),
        ("-Os", "optsize", use_oz),
    ):
        ir = HAND_WORKED.replace("minsize optsize", attributes)
        plain, steered = compile_by(ir, "", level), compile_by(ir, "always", level)
        assert steered.data == plain.data
        assert not steered.log["steered"] and steered.log["reason"] == reason


def test_growth_is_not_limited_as_in_training(compile_by):
    """LLVM's advisor would stop once the module has doubled, and refuse the rest."""
    large, calls = function("void @large()", *sinks(*range(30))), ["@large()"] * 20
    ir = SINK + large + function("void @all()", *calls)
    assert compile_by(ir, "always").log["decisions"] == 20
    limit = ("-mllvm", "-ml-advisor-size-increase-threshold=2")
    # Whoever gives the option is obeyed.
    assert 0 < compile_by(ir, "always", *limit).log["decisions"] < 20


# What is left to LLVM does not depend on its version.
one_version = pytest.mark.parametrize("clang", ["clang-22"], indirect=True)


def calls_of(callee: str, count: int) -> list[str]:
    return [f"@{callee}(i32 {number})" for number in range(count)]


@one_version
def test_llvm_decides_in_callers_of_very_many_calls(compile_by):
    """There a decision would cost more than it can win."""
    huge = function("void @huge()", *calls_of("once", 2000))
    ir = HAND_WORKED + huge
    plain, (steered, log, _) = compile_by(ir, ""), compile_by(ir, "never")
    # The small functions beside it are decided as if it were not there.
    assert (log["decisions"], log["left"]) == (len(HAND_WORKED_DEFAULT), 2000)
    assert log["departures"] == sum(HAND_WORKED_DEFAULT) and steered != plain.data

    alone = SINK + function("linkonce_odr void @once(i32 %x)", "@sink(i32 %x)") + huge
    plain, (steered, log, _) = compile_by(alone, ""), compile_by(alone, "never")
    assert steered == plain.data and (log["decisions"], log["left"]) == (0, 2000)


@one_version
def test_a_caller_that_grows_is_left_on_the_way(compile_by):
    """A ring of three with ten calls each: inlining brings 100 of the next, then 1,000."""
    ring = "".join(
        function(f"void @{name}(i32 %x)", *calls_of(callee, 10))
        for name, callee in (("a", "b"), ("b", "c"), ("c", "a"))
    )
    log = compile_by(ring, "always").log
    assert log["decisions"] > 10 and log["left"] > 10


@one_version
def test_llvm_decides_where_a_large_function_has_very_many_users(compile_by):
    for users, decisions in ((300, 0), (3, 3)):
        callers = [function(f"void @user{k}()", "@large(i32 0)") for k in range(users)]
        ir = "".join([SINK, function("void @large(i32 %x)", *sinks(*range(600))), *callers])
        plain, (steered, log, _) = compile_by(ir, ""), compile_by(ir, "always")
        assert (log["decisions"], log["left"]) == (decisions, users - decisions)
        assert (steered == plain.data) == (decisions == 0)


@one_version
def test_a_large_local_function_may_still_go_to_its_last_caller(compile_by):
    """LLVM inlines it in a caller of its own SCC, and removes it there."""
    tails = calls_of("tail", 1500)
    ring = (
        SINK
        + function("void @tail(i32 %x)", *sinks(*range(3)))
        + function("void @huge(i32 %x)", *tails, "@back(i32 %x)")
        + function("internal void @back(i32 %x)", *tails, "@huge(i32 %x)")
    )
    plain, (steered, log, _) = compile_by(ring, ""), compile_by(ring, "never")
    assert steered == plain.data and log["left"] >= 3000


@pytest.fixture
def never(toolchain):
    return build_plugin(toolchain, heuristic_source("never"))


OPTIONS = (
    ("-O2", "-frecord-command-line"),
    ("-O0", "-g", "-grecord-command-line"),
    ("-Oz", "-g", "-grecord-gcc-switches", "-frecord-command-line", "-DX=a b"),
    ("-Oz", "-flto", "-frecord-command-line"),
)


@pytest.mark.parametrize("name", ["plain", "with a space"])
def test_recorded_command_lines_do_not_name_us(clang, never, tmp_path, name):
    """The plugin is called steer.so here, as in `tfrl build`, and comes from a configuration."""
    directory = tmp_path / name
    directory.mkdir()
    shutil.copy(never, directory / "steer.so")
    (directory / "clang.cfg").write_text(f'-fpass-plugin="{directory}/steer.so"\n')
    (tmp_path / "source.c").write_text("int next(int x) { return x + 1; }\n")
    user = f"--config-user-dir={directory}"
    environment = {**os.environ, "TFRL_INLINING_CONFIG": str(directory)}
    for options in OPTIONS:
        command = [*options, "-c", "source.c", "-o", "object.o"]
        built = []
        for added in ([], [user, *command], [*command, user]):
            line = [clang.executable, *(added or command)]
            subprocess.run(line, cwd=tmp_path, env=environment, check=True)
            built.append((tmp_path / "object.o").read_bytes())
        assert b"object.o" in built[0] or "-flto" in options
        assert built[1] == built[2] == built[0], options


def test_command_lines_of_others_are_recorded(clang, never, tmp_path):
    shutil.copy(never, tmp_path / "inliner.so")
    (tmp_path / "source.c").write_text("int next(int x) { return x + 1; }\n")
    own = f"-fpass-plugin={tmp_path}/inliner.so"
    command = [clang.executable, own, "--config-user-dir=/theirs", "-frecord-command-line"]
    environment = {**os.environ, "TFRL_INLINING_CONFIG": str(tmp_path)}
    command += ["-O2", "-c", "source.c", "-o", "object.o"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    recorded = (tmp_path / "object.o").read_bytes()
    assert own.encode() in recorded and b"--config-user-dir=/theirs" in recorded


def test_a_feature_that_this_llvm_lacks_means_llvms_own_decisions(compile_by):
    source = heuristic_source("cost<-20").replace("cost_estimate", "no_such_feature")
    plain, (steered, log, _) = compile_by(HAND_WORKED, ""), compile_by(HAND_WORKED, source)
    assert steered == plain.data
    assert not log["steered"] and log["reason"] == "this clang has no no_such_feature"


def test_a_file_that_cannot_be_written_does_not_end_a_compile(compile_by, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for place in ("/no/such/directory/log", str(tmp_path / "link")):
        variables = {"TFRL_INLINING_LOG": place, "TFRL_INLINING_ROWS": place}
        assert compile_by(HAND_WORKED, "never", **variables).data
    assert not (tmp_path / "target").exists()  # links are not followed
