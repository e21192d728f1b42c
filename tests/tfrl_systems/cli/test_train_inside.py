"""Training with a clang that has the policies inside gives what its channel gives."""

from __future__ import annotations

import json

import pytest

from environments.inlining.plugin import compiler
from tests.requirements import needs_programs, skip_if
from tests.tfrl_systems.conftest import train_arguments
from tfrl_systems.systems.inlining import workers


@pytest.mark.ci
@needs_programs("clang-22")
def test_the_same_policy_is_learned(tfrl, corpus, holdout, plugin_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    skip_if(compiler.why_no_plugins("clang-22"))
    logs, results = [], []
    for name in ("inside", "asked"):
        if name == "asked":
            for module in (compiler, workers):
                monkeypatch.setattr(module, "why_no_plugins", lambda clang: "no headers here")
        command = train_arguments(corpus, holdout, tmp_path / f"{name}.db", tmp_path / name)
        # The second iteration collects with what was learned in the first.
        command += ["--iterations", "2", "--set", "num_models=1", "--set", "epochs=2"]
        ran = tfrl(*command, "--compiler", "clang-22", "--collect", "inprocess")
        assert ran.status == 0, ran.err
        logs.append(ran.err)
        results.append(json.loads((tmp_path / name / "result.json").read_text()))
    assert "clang-22 has the policies inside" in logs[0]
    assert "clang-22 is asked at each call site" in logs[1] and "no headers here" in logs[1]
    for figure in ("policy_sha256", "experience_sha256", "environment_steps"):
        assert results[0][figure] == results[1][figure]
