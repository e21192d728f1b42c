"""Other people's builds: whatever is in them, they do what they would have done alone."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from environments.inlining.plugin.steering import Steering, cache_variables
from tests.checkout import environment
from tests.requirements import need_programs
from tests.tfrl_systems.cli.small_project import (
    CLANGS,
    find_clang,
    objects,
    run,
    write_sources,
)
from tfrl_systems.systems.inlining.building.trees_on_disk import unheard

NEVER = ("build", "--policy", "never", "--json", "--")
NEVER_BY_ONE = (*NEVER[:-1], "--compiler")
DEFAULT = ("build", "--policy", "default", "--json", "--")


def start(*command: object, cwd: pathlib.Path, **keywords) -> subprocess.Popen:
    """Start `tfrl build` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfrl_systems.cli.main", *map(str, command)],
        cwd=cwd,
        env=environment(),
        **keywords,
    )


def test_llvms_own_policy_needs_no_plugin(tfrl, one_clang, project):
    """So also what records the command line stays the same."""
    shell = f"{one_clang} -Oz -g -frecord-command-line -grecord-gcc-switches -MJ part -c main.cpp"
    built = []
    for verb in ([], DEFAULT):
        for name in ("main.o", "part"):
            (project / name).unlink(missing_ok=True)
        if not verb:
            run("sh", "-c", shell, cwd=project)
        else:
            ran = tfrl(*verb, "sh", "-c", f"{shell}; env")
            assert ran.json["compiles"] == 1 and ran.json["steered"] == 0
            assert "needs no plugin" in ran.json["reason"]
            assert "TFRL_INLINING" not in ran.err and "CCC_OVERRIDE_OPTIONS" not in ran.err
        built.append([(project / name).read_bytes() for name in ("main.o", "part")])
    assert built[0] == built[1]


def test_a_compilation_database_of_clang_does_not_name_the_plugin(tfrl, clang, project):
    """Neither from a clang that compiles in its own process nor from one that starts another."""
    shell = (
        f"{clang} -Oz -MJ one.part -c 'library 0.cpp' && {clang} -Oz -MJ two.part main.cpp "
        "'library 0.cpp' 'library 1.cpp' -o program"
    )
    run("sh", "-c", shell, cwd=project)
    parts = {name: (project / name).read_text().rstrip(",\n") for name in ("one.part", "two.part")}
    for name in parts:
        (project / name).unlink()
    assert tfrl(*NEVER, "sh", "-c", shell).json["steered"] == 4
    for name, part in parts.items():
        text = (project / name).read_text()
        entries = json.loads(f"[{text.rstrip().rstrip(',')}]")
        plain = json.loads(f"[{part}]")
        assert len(entries) == len(plain)
        assert [_lasting(entry) for entry in entries] == [_lasting(entry) for entry in plain]


def _lasting(entry: dict) -> list[str]:
    """The arguments but for names of temporary files."""
    return [word for word in entry["arguments"] if not word.startswith("/tmp/")]


def test_a_cache_that_vanishes_during_the_build(tfrl, one_clang, project, own_plugins):
    """As for another user, or in a name space without the home directory."""
    compile_main = f"{one_clang} -Werror -Oz -c main.cpp -o main.o"
    run("sh", "-c", compile_main, cwd=project)
    plain = objects(project)
    build = (*NEVER_BY_ONE, one_clang, "--")
    ran = tfrl(*build, "sh", "-c", f"mv '{own_plugins}' '{own_plugins}.gone'; {compile_main}")
    assert ran.status == 0 and objects(project) == plain
    (left_out,) = ran.json["plain"]
    assert left_out["file"] == "main.o" and "another user" in left_out["reason"]


@pytest.mark.usefixtures("default_signals")
def test_signals_open_files_and_input_reach_the_command(project):
    """make tells its parts by an open pipe how many of them may run."""
    reader, writer = os.pipe()
    os.write(writer, b"+")
    shell = "".join(f"trap 'echo {name}' {name}; " for name in ("HUP", "USR1"))
    shell += (
        f"trap 'exit 7' TERM; head -c 1 /dev/fd/{reader}; head -c 5; while :; do sleep 0.1; done"
    )
    process = start(
        "build", "--policy", "default", "--", "sh", "-c", shell, cwd=project,
        pass_fds=(reader,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    process.stdin.write(b"typed")
    process.stdin.flush()
    assert process.stdout.read(6) == b"+typed"
    for number in (signal.SIGHUP, signal.SIGUSR1):
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name[3:]}\n".encode()
    process.terminate()
    assert process.wait(timeout=60) == 7
    process.communicate()
    os.close(reader), os.close(writer)


SIGNALLED_EARLY = """
import os, pathlib, signal, subprocess, sys
from tfrl_systems.cli import main

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        if self.args[0] == "sh":
            while not pathlib.Path("begun").exists():
                pass
            os.kill(os.getpid(), signal.SIGHUP)

subprocess.Popen = Popen
sys.exit(main.main())
"""


@pytest.mark.usefixtures("default_signals")
def test_a_signal_before_the_command_is_known_reaches_it(project):
    """Were it lost, or ended it `tfrl` alone, the command would go on without end."""
    shell = "trap 'exit 7' HUP; touch begun; while :; do sleep 0.1; done"
    command = ["build", "--policy", "default", "--", "sh", "-c", shell]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_EARLY, *command],
        cwd=project, env=environment(), check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 7


def test_a_directory_that_is_gone(one_clang, tmp_path):
    sources = write_sources(tmp_path / "project")
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = f"{one_clang} -Oz -c '{sources}/main.cpp' -o {sources}/main.o"
    code = (
        f"import os, sys; os.rmdir({str(gone)!r}); "
        "os.execv(sys.executable, [sys.executable, '-m', 'tfrl_systems.cli.main', *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *NEVER, "sh", "-c", shell, "-C", str(sources)],
        cwd=gone, env=environment(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout)["steered"] == 1, done.stderr.decode()


def test_a_clean_environment_is_named_as_the_reason(tfrl, one_clang, project):
    """SCons gives its compilers one, too. Objects tell of it, and images where there are none."""
    compile_all = "*.cpp -o program" if find_clang(one_clang) else ""
    for arguments, left_out in (("-c main.cpp", "main.o"), (compile_all, "program")):
        ran = tfrl(*NEVER, "env", "-i", "sh", "-c", f"PATH=/usr/bin {one_clang} -Oz {arguments}")
        assert [plain["file"] for plain in ran.result["plain"]] == [left_out]
        assert "SCons" in ran.result["plain"][0]["reason"]
        assert ran.result["compiles"] == 1 and ran.result["steered"] == 0
        (project / left_out).unlink()


@pytest.mark.parametrize(
    ("objects", "sources", "silent"),
    [
        (["a.o", "b.cpp.o"], ["a.cpp", "b.cpp"], []),
        (["lib/x_la-a.o", "b.o"], ["a.c"], ["b.o"]),
        # A source without an object: it was compiled and linked at once.
        (["b.o"], ["main.cpp"], []),
        (["a.o"], [], ["a.o"]),
    ],
)
def test_objects_of_clangs_that_told_nothing(objects, sources, silent):
    assert unheard(objects, sources) == silent


def test_spaces_in_all_paths(tfrl, one_clang, project, own_plugins, tmp_path, monkeypatch):
    scratch = tmp_path / "my scratch"
    scratch.mkdir()
    assert " " in str(own_plugins)
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    ran = tfrl(*NEVER_BY_ONE, one_clang, "--", one_clang, "-Oz", "-c", "main.cpp")
    assert ran.status == 0 and ran.json["steered"] == 1, ran.err


def test_a_log_that_cannot_be_written_is_said():
    reason = Steering({}, pathlib.Path("/dev/full")).why_no_log()
    assert "/dev/full cannot be written (No space left on device)" in reason


def test_what_ccache_is_told_by_its_own_file_is_kept(tmp_path, monkeypatch):
    """Where the user has files hashed, an object is made anew when one of these changes."""
    need_programs("ccache")
    (tmp_path / "ccache.conf").write_text("extra_files_to_hash = /mine\nnamespace = ours\n")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path))
    plugins = tmp_path / "set-1"
    plugins.mkdir()
    (plugins / "steer.so").touch()
    variables = cache_variables(plugins, "7")
    assert variables["CCACHE_EXTRAFILES"] == f"/mine:{plugins}/steer.so"
    assert variables["CCACHE_NAMESPACE"] == "ours-set-1-7"


def test_objects_of_every_format_are_seen(tfrl, one_clang, project):
    """In a clean environment no clang tells of what it compiles."""
    (project / "k.c").write_text("int twice(int x) { return 2 * x; }\n")
    formats = (
        "--target=x86_64-apple-macosx",
        "--target=x86_64-w64-mingw32",
        "--target=wasm32",
        "-flto",
    )
    compiles = (f"{one_clang} {option} -c k.c -o {k}.o" for k, option in enumerate(formats))
    ran = tfrl(*NEVER, "env", "-i", shutil.which("sh"), "-c", " && ".join(compiles))
    assert sorted(part["file"] for part in ran.result["plain"]) == ["0.o", "1.o", "2.o", "3.o"]


@pytest.mark.slow
def test_go_gives_no_objects_of_another_policy(tfrl, project, monkeypatch, tmp_path):
    need_programs("go", CLANGS[1])
    clang, _ = find_clang(CLANGS[1])
    monkeypatch.setenv("CXX", clang)
    monkeypatch.setenv("CC", clang.replace("++", ""))
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go"))
    for path in project.glob("*.cpp"):
        path.unlink()
    (project / "go.mod").write_text("module example.org/x\ngo 1.19\n")
    (project / "shape.cpp").write_text(
        '#include "shape.h"\nextern "C" int measure(int n) { Sum s; s.add(n); return s.total; }\n'
    )
    (project / "main.go").write_text(
        "package main\n// #cgo CXXFLAGS: -Oz\n// #cgo LDFLAGS: -lstdc++\n// int measure(int);\n"
        'import "C"\nfunc main() { if C.measure(3) != 6 { panic("wrong") } }\n'
    )
    texts = []
    for policy in ("", "never", ""):
        command = ("go", "build", "-o", "program", ".")
        if policy:
            ran = tfrl("build", "--policy", policy, "--json", "--", *command)
            assert ran.json["steered"] > 0
        else:
            run(*command, cwd=project)
        run("./program", cwd=project)
        run("objcopy", "-O", "binary", "-j", ".text", "program", "text", cwd=project)
        texts.append((project / "text").read_bytes())
        (project / "program").unlink()  # Go, too, keeps what is there and up to date
    assert texts[0] == texts[2] != texts[1]
