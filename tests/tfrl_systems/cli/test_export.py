"""`tfrl export` to LLVM's own modes; test_build.py exports plugins."""

from __future__ import annotations

import contextlib
import json

import pytest

from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.features import DERIVED_FEATURES
from tests.tfrl_systems.conftest import train_arguments
from tfrl_systems.cli.main import main


@pytest.fixture(scope="module")
def embedded_features():
    """What LLVM itself knows, as the model's inputs."""
    with contextlib.closing(EmbeddedLlvm()) as compiler:
        return [name for name in compiler.announced if name not in DERIVED_FEATURES]


@pytest.mark.ci
def test_a_policy_that_was_learned_for_llvms_own_modes(
    tfrl, corpus, holdout, cache, tmp_path, embedded_features
):
    command = train_arguments(corpus, holdout, cache, tmp_path / "run")
    learned_from = ",".join(embedded_features[:4])
    command += ["--iterations", "1", "--workers", "1", "--set", "scope=all"]
    assert main([*command, "--set", f"features={learned_from}"]) == 0
    ran = tfrl(
        *("export", "--policy", tmp_path / "run" / "policy", "--format", "mlgo"),
        *("-o", tmp_path / "model", "--json"),
    )
    assert set(ran.result["features"]) == {*embedded_features, "inlining_default"}
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    (spec,) = json.loads((tmp_path / "model" / "output_spec.json").read_text())
    assert spec["logging_name"] == "inlining_decision"


def test_the_policy_of_the_installation_knows_more_than_llvms_modes_feed(tfrl, tmp_path):
    ran = tfrl("export", "--format", "mlgo", "-o", tmp_path / "model")
    assert ran.status == 1 and "shipped" in ran.err and "callee_is_linkonce" in ran.err
    assert "which LLVM's modes do not feed" in ran.err and len(ran.err.splitlines()) == 1
    assert not (tmp_path / "model").exists()
