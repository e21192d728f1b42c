"""Real trees of real build systems, configured before we come along, built with a policy inside."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from tests.requirements import need_one_of, need_programs
from tests.tfrl_systems.cli.small_project import CLANGS, objects, run, write_sources

EXPORT = ("export", "--policy", "never", "--format", "clang-plugin")


def configure(sources: pathlib.Path, tree: pathlib.Path, clang: str, generator: str) -> None:
    options = ["-DCMAKE_CXX_FLAGS=-Oz -Werror", f"-DCMAKE_CXX_COMPILER={clang}"]
    run("cmake", "-S", sources, "-B", tree, "-G", generator, *options, cwd=sources)


@pytest.mark.parametrize(
    "clang, generator",
    [pytest.param(CLANGS[0], "Unix Makefiles", marks=pytest.mark.ci), (CLANGS[1], "Ninja")],
    indirect=["clang"],
)
def test_a_configured_cmake_tree(tfrl, clang, tmp_path, monkeypatch, generator):
    sources = write_sources(tmp_path / "my project")
    plain, tree = tmp_path / "plain", tmp_path / "steered tree"
    for directory in (plain, tree):
        configure(sources, directory, clang, generator)
    run("cmake", "--build", plain, cwd=sources)
    monkeypatch.chdir(sources)
    command = ("--", "cmake", "--build", tree, "-j2")
    ran = tfrl("build", "--policy", "never", "--compare", plain, "--json", *command)
    report = ran.result
    assert (report["status"], report["compiles"], report["steered"]) == (0, 3, 3)
    assert report["plain"] == [] and report["departures"] > 0
    images = {pathlib.Path(image["path"]).name: image for image in report["images"]}
    assert images.keys() == {"program", "libshapes.so"}
    library = images["libshapes.so"]
    assert library["text_bytes"] > library["default_text_bytes"] > 0
    assert library["file_bytes"] < (tree / "libshapes.so").stat().st_size  # without symbols
    run(tree / "program", cwd=tree)
    # Built again, there is nothing to do, and it says so.
    ran = tfrl("build", "--policy", "never", *command)
    assert ran.status == 0 and "no new object" in ran.err


def start_sccache(directory: pathlib.Path, monkeypatch) -> None:
    """Starts a server of the test's own: versions before 0.8 know ports alone.

    Now and then the server runs, and who started it waits in vain for word of that.
    """
    with socket.create_server(("localhost", 0)) as free:
        monkeypatch.setenv("SCCACHE_SERVER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("SCCACHE_SERVER_UDS", str(directory / "server"))
    settings = directory / "settings"
    settings.write_text("server_startup_timeout_ms = 60000\n")
    monkeypatch.setenv("SCCACHE_CONF", str(settings))
    started = subprocess.run(["sccache", "--start-server"], check=False)
    if started.returncode:
        subprocess.run(["sccache", "--show-stats"], check=True)


@pytest.mark.parametrize(
    "clang, launcher",
    [pytest.param(CLANGS[0], "ccache", marks=pytest.mark.ci), (CLANGS[1], "sccache")],
    indirect=["clang"],
)
def test_compiler_caches_give_no_objects_of_another_policy(
    launcher, tfrl, clang, project, tmp_path, monkeypatch
):
    need_programs(launcher)
    for name in ("CCACHE_DIR", "SCCACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "objects"))
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as private:
        if launcher == "sccache":
            start_sccache(pathlib.Path(private), monkeypatch)
        make = ("make", f"CXX={launcher} {clang}")
        built = []
        for policy in ("", "never", "always"):
            if policy:
                ran = tfrl("build", "--policy", policy, "--json", "--", *make)
                assert ran.status == 0, ran.err
            else:
                run(*make, cwd=project)
            built.append(objects(project))
            run("rm", *built[-1], cwd=project)
        if launcher == "sccache":
            run(launcher, "--stop-server", cwd=project)
    plain, never, always = built
    assert len(plain) == len(never) == 3
    assert never["one.o"] not in (plain["one.o"], always["one.o"])


def test_nothing_need_be_trained_and_only_what_has_changed_is_compiled_again(
    tfrl, one_clang, project
):
    report = tfrl("build", "--json", "--", "make", f"CXX={one_clang}").json
    assert report["compiles"] == report["steered"] == 3
    os.utime(project / "library 1.cpp", (time.time() + 5, time.time() + 5))
    report = tfrl("build", "--policy", "never", "--json", "--", "make", f"CXX={one_clang}").json
    assert (report["compiles"], report["steered"]) == (1, 1)
    assert [image["path"] for image in report["images"]] == ["program"]


def test_other_compilers_go_their_way(tfrl, one_clang, project):
    gcc = need_one_of("g++")
    (project / "start.s").write_text(".text\n")
    (project / "k.cpp").write_text("int twice(int x) { return 2 * x; }\n")
    clang = f"{one_clang} -Oz -Werror"
    zig = f"{sys.executable} -m ziglang c++"
    windows = f"{one_clang} --driver-mode=cl --target=x86_64-pc-windows-msvc /WX"
    script = (
        f"{gcc} -Os -c main.cpp -o main.o && {one_clang} -O2 -c 'library 0.cpp' -o 0.o && "
        f"{clang} -c 'library 1.cpp' -o 1.o && {one_clang} -Werror -c start.s -o s.o && "
        f"{one_clang} -Werror -E k.cpp -o k.i && {windows} /c /O1 k.cpp /Fok.obj && "
        f"{zig} -Werror -Oz -c k.cpp -o zig.o && {one_clang} -Werror main.o 0.o 1.o -o program"
    )
    run("sh", "-c", script, cwd=project)
    before = objects(project)
    report = tfrl("build", "--policy", "never", "--json", "--", "sh", "-c", script).json
    assert report["status"] == 0
    assert {plain["file"]: plain["reason"].split(":")[0] for plain in report["plain"]} == {
        "main.o": "compiled by GCC",
        "library 0.cpp": "no function is optimised for size (-Oz)",
        "k.obj": "no clang told of it",
        "zig.o": "no clang told of it",
    }
    assert (report["compiles"], report["steered"]) == (5, 1)
    after = objects(project)
    assert {name for name in after if after[name] != before[name]} == {"1.o"}


def test_thin_lto_is_left_to_the_linker(tfrl, one_clang, project):
    need_programs(pathlib.Path(one_clang).name.replace("clang++", "lld"))
    script = (
        "for f in 'library 0' 'library 1' main; do "
        f'{one_clang} -Oz -flto=thin -Werror -c "$f.cpp" || exit 1; done; '
        f"{one_clang} -Oz -flto=thin -fuse-ld=lld -Werror *.o -o program"
    )
    report, built = {}, []
    for policy in ("default", "never"):
        report = tfrl("build", "--policy", policy, "--json", "--", "sh", "-c", script).json
        assert (report["status"], report["steered"]) == (0, 0)
        built.append((project / "program").read_bytes())
    # What a policy leaves, the linker would inline all the same.
    assert {plain["reason"] for plain in report["plain"]} == {
        "link-time optimisation: LLVM inlines when linking"
    }
    assert built[0] == built[1]
    (image,) = report["images"]
    assert image["path"] == "program" and image["text_bytes"] > 0
    run("./program", cwd=project)


def test_an_exported_plugin_needs_nothing_of_ours(tfrl, one_clang, tmp_path):
    compiler = one_clang.replace("++", "")
    source = write_sources(tmp_path / "project") / "library 0.cpp"
    plugin = tmp_path / "inliner.so"
    export = (*EXPORT, "-o", plugin)
    report = tfrl(*export, "--compiler", compiler, "--json").json
    assert report["size_bytes"] == plugin.stat().st_size
    sizes = []
    for options in ([], [f"-fpass-plugin={plugin}"]):
        out = tmp_path / "out.o"
        command = (one_clang, "-Oz", *options, "-c", source, "-o", out)
        run(*command, cwd=tmp_path, env={"PATH": "/usr/bin"})
        sizes.append(out.read_bytes())
    assert sizes[0] != sizes[1]
    ran = tfrl(*export[:-1], "/no/such/directory/x.so", "--compiler", compiler)
    assert ran.status == 1 and "found none; make it" in ran.err
