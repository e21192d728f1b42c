"""The benchmark's figures are there and possible; how good they are is not for a test."""

from __future__ import annotations

import shutil

import pytest

from tfrl_systems.cli.cpu_time import cpu_s

NAMES = {"policy_us_per_decision", "trajectories_per_second"}
WITH_CLANG = NAMES | {
    "scored_trajectory_cpu_over_clang",
    "embedded_scored_trajectory_cpu_over_clang",
    "channel_us_per_decision",
}


def test_without_a_clang_the_embedded_llvm_is_measured(corpus, tfrl, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = tfrl("bench", "inlining", "--corpus", corpus, "--rounds", 1, "--workers", 1, "--json")
    assert ran.status == 0 and "nothing is compared with one" in ran.err
    benchmarks = {one["name"]: one for one in ran.json["benchmarks"]}
    assert benchmarks.keys() - {"policy_us_per_decision_in_scope"} == NAMES
    assert all(one["value"] > 0 and one["unit"] for one in benchmarks.values())
    assert all("tfrl bench inlining" in one["command"] for one in benchmarks.values())


@pytest.mark.skipif(shutil.which("clang-22") is None, reason="clang-22 is not installed")
def test_with_a_clang_both_are_compared(corpus, trained, tfrl):
    ran = tfrl(
        *("bench", "inlining", "--corpus", corpus, "--policy", trained / "policy"),
        *("--compiler", "clang-22", "--rounds", 1, "--modules", 3, "--json"),
    )
    assert ran.status == 0
    benchmarks = {one["name"]: one for one in ran.json["benchmarks"]}
    assert benchmarks.keys() >= WITH_CLANG
    ratio = benchmarks["scored_trajectory_cpu_over_clang"]
    assert 0.2 < ratio["ratio"] < 20 and ratio["against"] == "clang-22 -Oz -c"


def test_cpu_time_counts_children_that_still_run():
    import subprocess

    before_s = cpu_s()
    burning = subprocess.Popen(
        ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert burning.stdout.readline() == b"done\n"
        running_s = cpu_s() - before_s
        assert running_s > 0.02
    finally:
        burning.communicate()
    assert cpu_s() - before_s >= running_s
