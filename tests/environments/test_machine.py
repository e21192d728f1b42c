"""Places of a user whom the machine does not know."""

from __future__ import annotations

import pathlib
import pwd

import pytest

from environments import machine
from environments.inlining.corpus.units import find_project_root
from environments.inlining.plugin import steering


def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")


@pytest.mark.parametrize("home", [None, ""])
def test_the_home_of_an_unknown_user_is_the_root(home, monkeypatch, tmp_path):
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no go
    monkeypatch.delenv("GOCACHE", raising=False)
    monkeypatch.setenv("HOME", "")
    if home is None:
        monkeypatch.delenv("HOME")
    assert machine.home_directory() == pathlib.Path("/")
    assert machine.cache_directory() == pathlib.Path("/.cache/tfrl")
    variables = steering.cache_variables(tmp_path, "")
    assert variables["GOCACHE"] == f"/.cache/go-build-{tmp_path.name}"
    assert find_project_root(tmp_path) == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name/x")
    assert machine.cache_directory() == pathlib.Path("~nobody-of-this-name/x/tfrl")


def test_the_home_of_a_known_user(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert machine.cache_directory() == pathlib.Path("/home/ada/.cache/tfrl")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/fast")
    assert machine.cache_directory() == pathlib.Path("/home/ada/fast/tfrl")
    monkeypatch.delenv("HOME")
    entry = pwd.struct_passwd(("ada", "x", 1, 1, "", "/home/lovelace", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    assert machine.home_directory() == pathlib.Path("/home/lovelace")
