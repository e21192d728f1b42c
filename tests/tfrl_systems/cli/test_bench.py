"""The benchmark's figures are there and possible; how good they are is not for a test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from environments.inlining.plugin.compiler import why_no_plugins
from tests.requirements import needs_programs, skip_if
from tfrl_systems.cpu_time import cpu_s

NAMES = {"policy_us_per_decision", "trajectories_per_second"}
WITH_CLANG = NAMES | {
    "scored_trajectory_cpu_over_clang",
    "embedded_scored_trajectory_cpu_over_clang",
    "channel_us_per_decision",
}

QUICK = {
    "collect_ms": "ms",
    "broadcast_ms": "ms",
    "query_us": "us",
    "query_us_per_row": "us",
    "numpy_actor_over_tf_actor": None,
}
SLOW = {
    "collect_over_eager_driver": None,
    "collect_over_tf_function_driver": None,
    "collect_over_parallel_py_environment": None,
    "pipes_collect_ms_2_workers": "ms",
    "pipes_scaling_sleep_1ms_2": None,
    "pipes_scaling_sleep_1ms_4": None,
    "pipes_scaling_sleep_1ms_8": None,
    "train_step_ms": "ms",
    "ppo_iteration_ms": "ms",
}


def test_without_a_clang_the_embedded_llvm_is_measured(corpus, tfrl, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = tfrl("bench", "inlining", "--corpus", corpus, "--rounds", 1, "--workers", 1, "--json")
    benchmarks = ran.benchmarks
    assert "nothing is compared with one" in ran.err
    assert benchmarks.keys() - {"policy_us_per_decision_in_scope"} == NAMES
    assert all(benchmark["value"] > 0 and benchmark["unit"] for benchmark in benchmarks.values())
    assert all("tfrl bench inlining" in benchmark["command"] for benchmark in benchmarks.values())


@pytest.mark.ci
@needs_programs("clang-22")
def test_a_clang_asked_and_with_the_policy_inside_is_compared_with_the_plain_one(
    corpus, trained, tfrl, plugin_cache, monkeypatch
):
    skip_if(why_no_plugins("clang-22"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    ran = tfrl(
        *("bench", "inlining", "--corpus", corpus, "--policy", trained / "policy"),
        *("--compiler", "clang-22", "--rounds", 1, "--modules", 2, "--huge-calls", 80, "--json"),
    )
    assert ran.benchmarks.keys() >= WITH_CLANG
    huge = [
        f"huge_function{policy}_cpu_over_plain_{calls}"
        for policy in ("", "_default")
        for calls in (10, 40, 80)
    ]
    for name in ("scored_trajectory_cpu_over_clang", "steered_build_cpu_over_plain", *huge):
        assert 0.2 < ran.benchmarks[name]["ratio"] < 20
    assert ran.benchmarks["scored_trajectory_cpu_over_clang"]["against"] == "clang-22 -Oz -c"
    assert 0 < ran.benchmarks["plugin_us_per_decision"]["value"] < 1e4


@pytest.mark.ci
def test_what_learning_to_optimise_costs(tfrl, monkeypatch):
    for package in ("gymnasium", "stable_baselines3"):
        monkeypatch.setitem(sys.modules, package, None)
    names = [*QUICK, "collect_over_stable_baselines3"]
    only = [word for name in names for word in ("--only", name)]
    ran = tfrl("bench", "learn_to_optimize", "--rounds", 1, *only, "--json")
    assert "left out: collect_over_stable_baselines3, without gymnasium" in ran.err
    check_form(ran.result["benchmarks"], QUICK)
    assert "--only collect_ms --only broadcast_ms" in ran.result["benchmarks"][0]["command"]


@pytest.mark.slow
def test_what_others_cost(tfrl):
    ran = tfrl("bench", "learn_to_optimize", "--rounds", 1, "--json")
    benchmarks = [
        benchmark
        for benchmark in ran.result["benchmarks"]
        if "stable_baselines3" not in benchmark["name"]  # it may not be installed
    ]
    check_form(benchmarks, QUICK | SLOW)
    text = tfrl("bench", "learn_to_optimize", "--rounds", 1, "--only", "train_step_ms").out
    assert text.splitlines()[1].startswith("train_step_ms ")


def check_form(benchmarks, units):
    """A value with its unit, or a ratio and what it is against."""
    assert {benchmark["name"] for benchmark in benchmarks} == units.keys()
    for benchmark in benchmarks:
        assert benchmark["command"].endswith(" --rounds 1")
        if units[benchmark["name"]]:
            assert benchmark["value"] > 0 and benchmark["unit"] == units[benchmark["name"]]
        else:
            assert benchmark["ratio"] == pytest.approx(
                benchmark["theirs_ms"] / benchmark["ours_ms"]
            )
            assert benchmark["cpu_ratio"] > 0 and benchmark["against"]


def test_cpu_time_counts_children_that_still_run():
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
