"""A study as the command line runs it."""

from __future__ import annotations

import json

import pytest

from tools.studies.__main__ import main

# The corpora of inlining have no inline functions of C++, which are the scope.
QUICK = ("scoped=false", "num_models=1", "epochs=1", "hidden_sizes=4")


@pytest.fixture
def arguments(tmp_path):
    """Options for tiny runs of inlining; the cache is the test's own."""
    words = ["--cache", tmp_path / "cache.db", "--workers", 1, "--seeds", 1, "--iterations", 1]
    return [*words, *(word for setting in QUICK for word in ("--set", setting))]


@pytest.fixture
def study(tmp_path, capsys):
    """Runs a study into tmp_path/out; returns the exit status, the tables and the records."""

    def run(name, *words):
        output = tmp_path / "out"
        status = main([name, "--output", str(output), *map(str, words)])
        captured = capsys.readouterr()
        paths = sorted((output / "records").glob("*.json"))
        records = {path.stem: json.loads(path.read_text()) for path in paths}
        return status, captured.out or captured.err, records

    return run
