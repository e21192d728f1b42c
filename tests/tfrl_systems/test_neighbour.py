"""A user's own `environments` beside a script: one line says what hides what."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import types

import pytest

import environments
from tests.checkout import environment
from tfrl_systems import neighbour

FORMS = {
    "module": {"environments.py": ""},
    "package": {"environments/__init__.py": "raise SystemExit('it was imported')"},
    "package with names of ours": {
        "environments/__init__.py": "",
        "environments/stack.py": "def prepare(): pass",
    },
}


@pytest.fixture(params=FORMS)
def folder(request, tmp_path):
    """Where a user has such a thing."""
    for name, text in FORMS[request.param].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_is_named_before_it_is_imported(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    for name in [name for name in sys.modules if name.partition(".")[0] == "environments"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError) as caught:
        neighbour.check("environments")
    ours = pathlib.Path(environments.__file__).parent
    (line,) = str(caught.value).splitlines()
    assert f"in {ours}, found {folder / 'environments'}" in line and "rename" in line
    assert "environments" not in sys.modules


def test_ours_and_none_are_let_pass(monkeypatch):
    neighbour.check("environments")
    neighbour.check("a_package_that_nobody_has")
    by_hand = types.ModuleType("environments")
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setitem(sys.modules, "environments", by_hand)
    with pytest.raises(ImportError, match="found a module without a file"):
        neighbour.check("environments")


def test_a_program_ends_with_that_line_alone(tmp_path):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "tfrl_systems.cli.main", "--version"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"found {tmp_path / 'environments'}, which hides it" in line
