"""Objectives compared by the images that they predict, on two modules that share a function."""

from __future__ import annotations

import pytest

from tests.environments.inlining.linking.conftest import ONE_OF_TWO
from tests.tfrl_systems.conftest import write_corpus
from tools.benchmarks import inlining_objectives

pytestmark = pytest.mark.study


def test_a_tiny_corpus(tmp_path):
    modules = {
        f"p/{name}.cpp": ONE_OF_TWO.format(name=name).replace(" noinline", "")
        for name in ("one", "two")
    }
    corpus = write_corpus(tmp_path / "corpus", {**modules, "p/ignored.c": modules["p/one.cpp"]})
    found = inlining_objectives.run(
        inlining_objectives.parse_arguments(["--corpus", str(corpus), "--workers", "1"])
    )
    assert found["modules"] == 2
    assert found["policies"] == len(inlining_objectives.THRESHOLDS) + 2 * len(
        inlining_objectives.SHARES
    )
    for objective in found["objectives"].values():
        assert objective["projects"].keys() == {"p"}
        assert -1 <= objective["least"] <= 1 and objective["least"] == objective["mean"]
    # What counts a shared function once for both orders the policies as the linker does.
    by_name = {name: one["mean"] for name, one in found["objectives"].items()}
    assert by_name["1/n"] >= by_name["object"]
