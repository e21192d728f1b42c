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


# Several verbs in one process, which imports TensorFlow once. Ray takes long to start and holds
# nothing of the wheel; test_doctor.py tries it.
VERBS = """
import json, sys
import environments, tfrl_systems
from tfrl_systems.cli.main import main

sys.modules["ray"] = None
files = [package.__file__ for package in (environments, tfrl_systems)]
print(json.dumps({"files": files}), flush=True)
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
"""


@pytest.fixture
def installed(wheel, tmp_path):
    """Where it was installed, and an environment of processes that find it only there."""
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", "--no-deps", "--no-index", "--target", site, wheel)
    return site, {**os.environ, "PYTHONPATH": str(site)}


@pytest.mark.ci
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


@pytest.mark.ci
def test_its_command_works(installed, tmp_path):
    """In a directory that has no checkout above it."""
    site, environment = installed
    write(tmp_path / "m.onnx", adapter())
    arguments = ("--objective", "analytic", "--no-measure", "--json")
    command = (site / "bin" / "tfrl", "optimize", "m.onnx", "-o", "fast.onnx", *arguments)
    optimized = json.loads(run(*command, cwd=tmp_path, env=environment).stdout)
    assert optimized["gain"] is True and (tmp_path / "fast.onnx").is_file()

    doctor = ["doctor", "--cache", "compiles.db", "--json"]
    rules = ["rules", "list", "--json"]
    words = (sys.executable, "-c", VERBS, json.dumps([doctor, rules]))
    said = run(*words, cwd=tmp_path, env=environment).stdout.splitlines()
    where, works, listed = map(json.loads, said)
    assert where["files"] == [str(site / package / "__init__.py") for package in PACKAGES]
    assert works["works"] is True and len(listed["rules"]) > 100
