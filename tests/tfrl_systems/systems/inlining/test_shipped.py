"""The policy that comes with the installation."""

from __future__ import annotations

import contextlib
import json

import numpy as np

from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.features import feature_names
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy


def test_it_is_small_and_says_how_it_was_made():
    files = [path for path in shipped.DIRECTORY.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 300_000
    made_by = json.loads((shipped.DIRECTORY / "made_by.json").read_text())
    assert made_by["command"].startswith("tfrl train inlining --agent bc_max")
    measured = {row["project"]: row["loaded"] for row in made_by["ladder"]}
    assert measured.keys() >= {"highs", "zxing"} and max(measured.values()) < 0


def test_it_decides_with_the_features_of_the_embedded_llvm():
    policy = load_policy(shipped.NAME)
    with contextlib.closing(make_compiler("embedded")) as compiler:
        names = feature_names(compiler.announced)
    decide = policy.begin("module", names)
    # Outside its scope it follows LLVM.
    row = np.zeros((2, len(names)), np.int64)
    row[1, names.index("inlining_default")] = 1
    assert decide(row, 0).tolist() == [0, 1]
