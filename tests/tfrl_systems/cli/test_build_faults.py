"""Builds that fail, are killed, or find no plugin: they end as the command alone would."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from environments.errors import UserError
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import heuristic_source
from environments.inlining.plugin.steering import steer
from environments.inlining.plugin.toolchain import find_toolchain
from tests.checkout import environment
from tests.tfrl_systems.cli.small_project import MAKE, fake_clang, run, write_sources
from tfrl_systems.cli.main import main

BUILD = (sys.executable, "-m", "tfrl_systems.cli.main", "build", "--policy", "never", "--json")


def test_a_clang_that_no_plugin_was_built_for_compiles_as_alone(clang, tmp_path):
    """The library that every clang loads finds no plugin for this version, and says so."""
    toolchain = find_toolchain(clang.replace("++", ""))
    source = write_sources(tmp_path / "project") / "library 0.cpp"
    command = [clang, "-Oz", "-Werror", "-c", source, "-o", tmp_path / "out.o"]
    run(*command, cwd=tmp_path)
    plain = (tmp_path / "out.o").read_bytes()
    with steer([toolchain], heuristic_source("never")) as steering:
        place = pathlib.Path(steering.environment["TFRL_INLINING_CONFIG"])
        damaged = tmp_path / "set"
        shutil.copytree(place, damaged)
        override = f"# ^--config-user-dir={damaged}"
        variables = environment(**{**steering.environment, "CCC_OVERRIDE_OPTIONS": override})
        plugin = damaged / f"inliner-{toolchain.major}.so"
        whole = plugin.read_bytes()
        for damage in ("gone", "half", "another LLVM's"):
            if damage == "gone":
                plugin.unlink()
            elif damage == "half":
                plugin.write_bytes(whole[: len(whole) // 2])
            else:
                plugin.write_bytes(
                    whole.replace(b"20DefaultInlineAdvisor", b"20DefaultInlineAdvisox")
                )
            run(*command, cwd=tmp_path, env=variables)
            assert (tmp_path / "out.o").read_bytes() == plain, damage
        compiles = steering.compiles()
    assert [clang_run.source for clang_run in compiles] == ["library 0.cpp"] * 3
    assert [clang_run.reason for clang_run in compiles] == [
        "no plugin was built for this clang",
        "the plugin cannot be loaded by this clang",
        "the plugin cannot be loaded by this clang",
    ]


def test_a_failing_build_fails_with_its_own_status(tfrl, one_clang, project):
    (project / "main.cpp").write_text("int main() { return undeclared; }\n")
    ran = tfrl("build", "--policy", "never", "--json", "--", "make", "-k", f"CXX={one_clang}")
    assert ran.status == ran.json["status"] == 2  # make's
    assert ran.json["steered"] == 2 and ran.json["images"] == []
    assert tfrl("build", "--policy", "never", "--", "sh", "-c", "exit 77").status == 77
    assert tfrl("build", "--policy", "never", "--", "sh", "-c", "kill -9 $$").status == 137


def test_without_headers_the_build_runs_and_the_package_is_named(
    tfrl, one_clang, tmp_path, project
):
    """Of the only clang, and of one of two."""
    fake = fake_clang(tmp_path / "bin" / "clang", one_clang)
    build = ("build", "--policy", "never", "--compiler", fake, "--json")
    ran = tfrl(*build, "--", fake, "-Oz", "-c", "main.cpp")
    assert ran.status == 0 and (project / "main.o").is_file()
    assert ran.json["steered"] == 0 and "apt-get install llvm-27-dev" in ran.json["reason"]
    assert "the command runs as it would alone" in ran.err
    ran = tfrl(*build, "--compiler", one_clang, "--", one_clang, "-Oz", "-c", "main.cpp")
    assert ran.json["steered"] == 1
    assert "clang 27 is not steered" in ran.err and "apt-get install llvm-27-dev" in ran.err


def wait_for(is_so, process: subprocess.Popen) -> None:
    while not is_so():
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.ci
@pytest.mark.usefixtures("default_signals")
def test_an_interrupted_build_can_be_finished(tfrl, one_clang, project, tmp_path):
    """The whole group gets the signal, as a terminal sends it."""
    scratch, make = tmp_path / "scratch", project / "Makefile"
    scratch.mkdir()
    command = ("make", f"CXX={one_clang}")
    # A shell that starts another process now and then loses a signal that comes just then.
    waiting = "\t: > begun; exec sleep 60 #"
    make.write_text(MAKE.replace("\t$(CXX) $(CXXFLAGS) -c main", waiting))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(
            [*BUILD, "--", *command],
            env=environment(TMPDIR=scratch),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for((project / "begun").exists, process)
        os.killpg(process.pid, number)
        out, _ = process.communicate(timeout=60)
        if number != signal.SIGKILL:
            assert process.returncode != 0 and json.loads(out)["status"] == process.returncode
            assert not list(scratch.iterdir())  # nothing of ours is left behind
        (project / "begun").unlink()
    make.write_text(MAKE)
    ran = tfrl("build", "--policy", "never", "--json", "--", *command)
    assert ran.json["steered"] == ran.json["compiles"] == 1  # the other two were there
    run(project / "program", cwd=project)


@pytest.mark.ci
def test_a_plugin_whose_making_was_killed_is_made_by_the_next_two_builds(
    one_clang, plugin_cache, tmp_path
):
    """The first is killed while it compiles the policy; then two start at once.

    The plugin's other part, the same for all policies, is there: compiling it takes long.
    """
    trees = [write_sources(tmp_path / name) for name in ("one", "two")]
    cache = tmp_path / "cache"
    toolchain = find_toolchain(one_clang.replace("++", ""))
    build_plugin(toolchain, heuristic_source("never"))
    for advisor in plugin_cache.rglob(f"advisor-{toolchain.major}.o"):
        shutil.copytree(advisor.parent, cache / advisor.parent.relative_to(plugin_cache))
    variables = environment(CXXFLAGS="-Oz", XDG_CACHE_HOME=cache)
    command = [*BUILD, "--compiler", one_clang.replace("++", "")]
    command += ["--", "make", f"CXX={one_clang}"]

    def start(tree: pathlib.Path) -> subprocess.Popen:
        return subprocess.Popen(
            command, cwd=tree, env=variables, stdout=subprocess.PIPE, start_new_session=True
        )

    killed = start(trees[0])
    wait_for(lambda: list(cache.rglob("policy.cpp")), killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    builds = [start(tree) for tree in trees]
    for build, tree in zip(builds, trees, strict=True):
        out, _ = build.communicate(timeout=300)
        assert build.returncode == 0
        assert json.loads(out)["steered"] == 3
        run(tree / "program", cwd=tree)
    assert len(list(cache.rglob("inliner-*.so"))) == 2  # the plugin, and its copy in the set


def test_a_cache_that_cannot_be_written(tfrl, one_clang, monkeypatch, project):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no")  # where not even root can write
    ran = tfrl("build", "--policy", "never", "--json", "--", "make", f"CXX={one_clang}")
    assert ran.status == 0 and ran.json["steered"] == 0
    assert "set XDG_CACHE_HOME to a place that can be written" in ran.json["reason"]
    run(project / "program", cwd=project)


def test_a_plugin_that_was_cut_off_is_made_again(one_clang, own_plugins):
    toolchain, never = find_toolchain(one_clang.replace("++", "")), heuristic_source("never")
    plugin = build_plugin(toolchain, never)
    assert plugin.is_relative_to(own_plugins)
    whole = plugin.read_bytes()
    plugin.write_bytes(whole[: len(whole) // 2])
    assert build_plugin(toolchain, never) == plugin
    assert len(plugin.read_bytes()) == len(whole)


def headers(directory: pathlib.Path, major: int) -> pathlib.Path:
    """Headers that say which LLVM they belong to, and nothing else."""
    for name, text in (
        ("Config/llvm-config.h", f"#define LLVM_VERSION_MAJOR {major}\n"),
        ("Analysis/MLInlineAdvisor.h", "#error not a header\n"),
    ):
        path = directory / "llvm" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return directory


def test_a_clang_without_good_headers_does_not_keep_others_from_being_steered(one_clang, tmp_path):
    good = find_toolchain(one_clang.replace("++", ""))
    bad = dataclasses.replace(good, include=headers(tmp_path / "include", good.major))
    with steer([bad, good], heuristic_source("never")) as steering:
        assert len(steering.failures) == 1
        assert f"clang {good.major} is not steered: plugin: expected" in steering.failures[0]
        source = write_sources(tmp_path / "project") / "library 0.cpp"
        command = [one_clang, "-Oz", "-c", source, "-o", tmp_path / "out.o"]
        run(*command, cwd=tmp_path, env={**os.environ, **steering.environment})
        (compiled,) = steering.compiles()
    assert compiled.reason == "" and compiled.decisions > 0


def test_headers_of_another_version_are_told_apart(one_clang, tmp_path):
    """A clang in a directory of its own, beside headers that are not its own."""
    real = pathlib.Path(one_clang.replace("++", "")).resolve()
    fake = fake_clang(tmp_path / "bin" / "clang", real)
    headers(tmp_path / "include", 26)
    with pytest.raises(UserError, match="headers of LLVM 27.*found those of LLVM 26 in .*include"):
        find_toolchain(fake)


@pytest.mark.parametrize(
    "says", ["clang version " + "9" * 5000, r"clang version \377", "", "clang version x"]
)
def test_a_program_that_says_strange_things_is_no_clang_to_steer(
    tmp_path, capfd, monkeypatch, says
):
    program = tmp_path / "clang"
    program.write_text(f"#!/bin/sh\nprintf '{says}'\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # images are looked for in the current directory
    assert main(["build", "--policy=never", f"--compiler={program}", "--json", "--", "true"]) == 0
    assert json.loads(capfd.readouterr().out)["steered"] == 0


def test_a_pipe_in_the_place_of_cmakes_cache_blocks_nothing(tmp_path, capfd, monkeypatch):
    os.mkfifo(tmp_path / "CMakeCache.txt")
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no clang there, so nothing is built
    assert main(["build", "--policy=never", "--json", "--", shutil.which("true", path="/bin")]) == 0
    assert json.loads(capfd.readouterr().out)["reason"] == "no clang of LLVM 19 or newer was found"


def test_an_image_of_terabytes_takes_no_memory(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = "printf '\\177ELF' > huge; truncate -s 4T huge"
    words = ["build", "--policy=never", "--compiler=/bin/true", "--json", "--", "sh", "-c", shell]
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out)["images"] == []


def test_a_command_that_no_system_starts(capfd):
    assert main(["build", "--policy=never", "--compiler=/bin/true", "--", "true", "a\0b"]) == 2
    assert "expected true to start, found: embedded null byte" in capfd.readouterr().err
