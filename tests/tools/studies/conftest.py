"""A study as the command line runs it."""

from __future__ import annotations

import json

import pytest

from tools.studies.__main__ import main


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
