"""What tests cost is said, whichever worker ran them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.checkout import ROOT

TESTS = """
import subprocess, sys

def test_alone():
    sum(range(20_000_000))

def test_with_children():
    for _ in range(2):
        subprocess.run([sys.executable, "-S", "-c", "sum(range(5_000_000))"], check=True)
"""


@pytest.mark.ci
def test_a_table_of_two_tests(tmp_path):
    path = tmp_path / "test_two.py"
    path.write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    plugin = ("-p", "tools.costs_of_tests", "--rootdir", tmp_path, "-c", tmp_path / "pytest.ini")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-n1", path],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    table = done.stdout.split("processes started ===")[1].splitlines()
    rows = {words[3]: words[:3] for words in map(str.split, table) if len(words) == 4}
    own_s, children_s, processes = rows["test_two.py::test_alone"]
    assert float(own_s) > 0 and (children_s, processes) == ("0.0", "0")
    own_s, children_s, processes = rows["test_two.py::test_with_children"]
    assert float(children_s) > 0 and processes == "2"
    assert rows["test_two.py"][2] == "2"
