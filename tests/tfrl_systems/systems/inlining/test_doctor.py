"""What the doctor says of clangs; that it tries all is `cli/test_doctor.py`."""

from __future__ import annotations

import pytest

from tests.environments.inlining.small_modules import write_script
from tests.requirements import need_one_of
from tests.tfrl_systems.cli.small_project import fake_clang
from tfrl_systems.systems.inlining import doctor


@pytest.mark.parametrize("script", ["exit 1", "echo 'clang version 15.0.7'", "echo gcc"])
def test_a_clang_that_is_none_or_too_old_is_no_failure(tmp_path, monkeypatch, script):
    write_script(tmp_path / "clang-18", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = doctor.clangs()
    assert not check.works and not check.needed and check.remedy


def test_a_clang_without_headers_names_their_package(tmp_path, monkeypatch):
    clang = need_one_of("clang-19", "clang-22")
    fake_clang(tmp_path / "clang-23", clang, "23.1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = doctor.plugins()
    assert not check.works and not check.needed and check.name == "plugin for clang-23"
    assert check.remedy == "install them: apt-get install llvm-23-dev"
