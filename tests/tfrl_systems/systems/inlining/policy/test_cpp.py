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
#include <vector>

int main() {
  using namespace tfrl::policy;
  std::vector<std::int64_t> Row(NumFeatures);
  while (std::fread(Row.data(), sizeof Row[0], NumFeatures, stdin) == NumFeatures)
    std::putchar(decide(Row.data(), false));
}
"""
COMPILER = next(
    ([path] for name in ("clang++-19", "c++", "g++", "clang++") if (path := shutil.which(name))),
    [sys.executable, "-m", "ziglang", "c++"],
)


def decide_in_cpp(directory: pathlib.Path, policy: CallSitePolicy, rows: np.ndarray) -> np.ndarray:
    (directory / "policy.cpp").write_text(to_cpp(policy))
    (directory / "main.cpp").write_text(MAIN)
    include = ROOT / "environments" / "inlining" / "plugin"
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    program = directory / "decide"
    sources = [directory / name for name in ("main.cpp", "policy.cpp")]
    command = [*COMPILER, *options, f"-I{include}", *sources, "-o", program]
    subprocess.run(command, check=True, timeout=300)
    needed = np.ascontiguousarray(rows[:, policy.columns(NAMES)])
    process = subprocess.run([program], input=needed.tobytes(), capture_output=True, check=True)
    return np.frombuffer(process.stdout, np.int8)


@pytest.mark.parametrize("scope", ["", "flag"])
def test_decides_as_numpy_does(scope, tmp_path):
    learned = decision_rows.draw(3000, 31)
    fitted = decision_rows.fit(learned, decision_rows.labels(learned), scope_feature=scope)
    policy = to_numpy(fitted).with_margins(0.125, 1.5 if scope else 128.0)
    rows = np.concatenate([decision_rows.draw(5000, 32), decision_rows.wild(500, 33)])
    expected = policy.begin("module", NAMES)(rows, 0)
    assert 0 < np.mean(expected != (rows[:, 1] > 0)) < 0.5
    np.testing.assert_array_equal(decide_in_cpp(tmp_path, policy, rows), expected)


def test_a_policy_that_never_departs_does_not_ask_its_model():
    policy = to_numpy(decision_rows.trained()).with_margins(128.0)
    _, decide = to_cpp(policy).split("bool decide")
    assert "return Inlines;" in decide and "votes(" not in decide


@pytest.mark.parametrize("name", ['a"; #include "/etc/passwd', "a\nb", "", "a b"])
def test_a_features_name_cannot_be_code(name):
    description, arrays = to_numpy(decision_rows.trained()).parts
    features = [name, *description["features"][1:]]
    policy = CallSitePolicy({**description, "features": features}, arrays, "evil")
    with pytest.raises(UserError, match="expected features with plain names"):
        to_cpp(policy)


def test_tables_that_do_not_fit_are_refused():
    description, arrays = to_numpy(decision_rows.trained()).parts
    for changed in (
        {"weights_0": arrays["weights_0"] + 0.5},
        {"weights_0": arrays["weights_0"] * np.inf},
    ):
        with np.errstate(invalid="ignore"):
            policy = CallSitePolicy(description, {**arrays, **changed}, "damaged")
        with pytest.raises(UserError, match="train the policy again"):
            to_cpp(policy)
