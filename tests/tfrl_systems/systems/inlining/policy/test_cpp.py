"""The C++ file of a policy decides as the policy does, on every row."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from environments.errors import UserError
from tests.checkout import ROOT
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.cpp import to_cpp
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy

MAIN = """
#include "policy.h"
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int NumArguments, char **Arguments) {
  using namespace tfrl::policy;
  std::vector<std::int64_t> Row(NumFeatures);
  const std::int64_t Margin = NumArguments > 1 ? std::atoll(Arguments[1]) : OwnMargin;
  while (std::fread(Row.data(), sizeof Row[0], NumFeatures, stdin) == NumFeatures)
    std::putchar(decide(Row.data(), false, Margin));
}
"""
COMPILER = next(
    ([path] for name in ("clang++-19", "c++", "g++", "clang++") if (path := shutil.which(name))),
    [sys.executable, "-m", "ziglang", "c++"],
)


def build_decider(directory: pathlib.Path, policy: CallSitePolicy):
    """Return a function (rows, margin in 2^-24 of a logit...) -> decisions, which C++ takes."""
    (directory / "policy.cpp").write_text(to_cpp(policy))
    (directory / "main.cpp").write_text(MAIN)
    include = ROOT / "environments" / "inlining" / "plugin"
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    program = directory / "decide"
    sources = [directory / name for name in ("main.cpp", "policy.cpp")]
    command = [*COMPILER, *options, f"-I{include}", *sources, "-o", program]
    subprocess.run(command, check=True, timeout=300)

    def decide(rows: np.ndarray, *margin: int) -> np.ndarray:
        needed = np.ascontiguousarray(rows[:, policy.columns(NAMES)])
        words = [program, *map(str, margin)]
        process = subprocess.run(words, input=needed.tobytes(), capture_output=True, check=True)
        return np.frombuffer(process.stdout, np.int8)

    return decide


@pytest.mark.parametrize("scope", ["", "flag"])
def test_decides_as_numpy_does(scope, tmp_path):
    learned = decision_rows.draw(3000, 31)
    fitted = decision_rows.fit(learned, decision_rows.labels(learned), scope_feature=scope)
    outside = 1.5 if scope else 128.0
    policy = to_numpy(fitted).with_margins(0.125, outside)
    rows = np.concatenate([decision_rows.draw(5000, 32), decision_rows.wild(500, 33)])
    expected = policy.begin("module", NAMES)(rows, 0)
    assert 0 < np.mean(expected != (rows[:, 1] > 0)) < 0.5
    decide = build_decider(tmp_path, policy)
    np.testing.assert_array_equal(decide(rows), expected)
    # The same program with other margins: one that only rounding to 2^-24 makes exact, and never.
    for margin in (0.125, -0.25, 1 / 3, 2.0, 128.0):
        expected = policy.with_margins(margin, outside).begin("module", NAMES)(rows, 0)
        np.testing.assert_array_equal(decide(rows, round(margin * 2**24)), expected)


@pytest.mark.parametrize("name", ['a"; #include "/etc/passwd', "a\nb", "", "a b"])
def test_a_features_name_cannot_be_code(name):
    description, arrays = to_numpy(decision_rows.trained()).parts
    features = [name, *description["features"][1:]]
    policy = CallSitePolicy({**description, "features": features}, arrays, "evil")
    with pytest.raises(UserError, match="expected features with plain names"):
        to_cpp(policy)


def test_tables_that_do_not_fit_are_refused():
    description, arrays = to_numpy(decision_rows.trained()).parts
    for change in (0.5, np.inf):
        weights = {"weights_0": arrays["weights_0"] + change}
        with np.errstate(invalid="ignore"):
            policy = CallSitePolicy(description, {**arrays, **weights}, "damaged")
        with pytest.raises(UserError, match="train the policy again"):
            to_cpp(policy)
