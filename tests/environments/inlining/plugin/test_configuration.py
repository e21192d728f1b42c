"""Configuration files by which clangs load the plugin, and which others they hide."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from environments.inlining.plugin.building import unwritable
from environments.inlining.plugin.configuration import Defaults, configuration_texts, read_defaults
from tests.environments.inlining.small_modules import write_script

OPTION = "-fpass-plugin=<CFGDIR>/steer.so\n"
LINUX, WASM = "x86_64-pc-linux-gnu", "wasm32-unknown-wasi"


def defaults(triple=LINUX, clang=(), clangxx=(), user_directory=""):
    return Defaults(triple, {"clang": clang, "clang++": clangxx}, user_directory)


def test_where_no_clang_reads_files_of_its_own_all_targets_are_steered():
    texts, failures = configuration_texts({"clang-19": defaults(), "clang": defaults(WASM)}, ())
    assert failures == []
    assert (texts["clang.cfg"], texts["clang++.cfg"]) == (OPTION, OPTION)
    assert "plugin=" not in texts["clang-cl.cfg"]


def test_what_a_clang_reads_itself_is_included():
    own = defaults(clang=("/etc/clang/x.cfg", "/etc/a b.cfg"), clangxx=("/etc/c\\d.cfg",))
    texts, failures = configuration_texts({"clang": own}, ())
    assert failures == []
    assert texts == {
        f"{LINUX}-clang.cfg": f"@/etc/clang/x.cfg\n@/etc/a\\ b.cfg\n{OPTION}",
        f"{LINUX}-clang++.cfg": f"@/etc/c\\\\d.cfg\n{OPTION}",
    }


@pytest.mark.parametrize(
    ("refusing", "wasm", "expected"),
    [
        # One that fails with a plugin bars the clangs for its target, and no others.
        (["bad"], defaults(WASM), "no clang for wasm32-unknown-wasi is steered: bad takes no plug"),
        # Two for one target, of which only one has a file: ours would give it to both.
        ([], defaults(WASM, ("/wasi/clang.cfg",)), "clang and bad read different"),
    ],
)
def test_a_clang_that_cannot_be_steered_turns_off_its_target_alone(refusing, wasm, expected):
    clangs = {"host": defaults(), "clang": defaults(WASM), "bad": wasm}
    texts, (failure,) = configuration_texts(clangs, refusing)
    assert expected in failure
    assert set(texts) == {f"{LINUX}-clang.cfg", f"{LINUX}-clang++.cfg"}


def test_other_files_of_the_directory_that_is_hidden_are_included(tmp_path):
    for name in ("arm.cfg", f"{LINUX}-clang.cfg"):
        (tmp_path / name).write_text("-DX\n")
    own = str(tmp_path / f"{LINUX}-clang.cfg")
    texts, _ = configuration_texts(
        {"clang": defaults(clang=(own,), user_directory=str(tmp_path))}, ()
    )
    assert texts["arm.cfg"] == f"@{tmp_path}/arm.cfg\n"
    assert texts[f"{LINUX}-clang.cfg"] == f"@{own}\n{OPTION}"


def test_what_clang_says_about_its_files_is_read(tmp_path):
    (tmp_path / "user").mkdir()
    clang = write_script(
        tmp_path / "clang",
        'echo "clang version 20.1.0\nTarget: x86_64-pc-linux-gnu\nThread model: posix" >&2\n'
        f'echo "User configuration file directory: {tmp_path}/user" >&2\n'
        '[ "$1" = --driver-mode=g++ ] && echo "Configuration file: /etc/my clang++.cfg" >&2\n'
        "exit 0",
    )
    defaults = read_defaults(str(clang))
    assert defaults == Defaults(
        LINUX, {"clang": (), "clang++": ("/etc/my clang++.cfg",)}, f"{tmp_path}/user"
    )
    assert read_defaults("/no/such/clang").is_empty


@pytest.mark.parametrize(
    ("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)]
)
def test_only_a_full_disk_asks_for_space(number, is_full):
    message = str(unwritable(pathlib.Path("/cache"), OSError(number, os.strerror(number))))
    assert ("free some space" in message) == is_full
    assert "set XDG_CACHE_HOME to a place that can be written" in message
