"""The built wheel works where there is no checkout: a user's `pip install`."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from tests.checkout import PACKAGES, ROOT, copy_sources
from tests.environments.tensor_graphs.small_models import adapter, write


def run(*command: object, **keywords) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, **keywords)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """Built from a copy, which keeps the checkout as it is and old builds out of the wheel."""
    copy = copy_sources(tmp_path_factory.mktemp("copy"))
    out = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, copy)
    (path,) = out.iterdir()
    return path


@pytest.fixture
def tfrl(wheel, tmp_path):
    """Runs the installed command in a directory that has no checkout above it."""
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", "--no-deps", "--no-index", "--target", site, wheel)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = "import environments, tfrl_systems as t; print(environments.__file__, t.__file__)"
    found = run(sys.executable, "-c", where, cwd=tmp_path, env=environment).stdout
    assert found.split() == [str(site / package / "__init__.py") for package in PACKAGES]
    return lambda *words: run(site / "bin" / "tfrl", *words, cwd=tmp_path, env=environment)


def test_it_holds_every_file_of_the_packages(wheel):
    """Sources of other languages and tables too, which `package_data` has to name."""
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith(".json") for name in expected)


def test_its_command_works(tfrl, tmp_path):
    doctor = json.loads(tfrl("doctor", "--cache", "compiles.db", "--json").stdout)
    assert doctor["works"] is True

    write(tmp_path / "m.onnx", adapter())
    arguments = ("--objective", "analytic", "--no-measure", "--json")
    optimized = json.loads(tfrl("optimize", "m.onnx", "-o", "fast.onnx", *arguments).stdout)
    assert optimized["gain"] is True and (tmp_path / "fast.onnx").is_file()

    problem = ("learn_to_optimize", "--agent", "ppo", "--function", "shifted_ackley")
    workers = ("--collect", "pipes", "--workers", "1")
    tfrl("train", *problem, *workers, "--iterations", "1", "--workdir", "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["iterations"] == 1 and (tmp_path / "run" / "policy" / "policy.json").is_file()
