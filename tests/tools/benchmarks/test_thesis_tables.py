"""The thesis's tables: figures worked by hand, and a tiny run."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from tools.benchmarks import (
    shared,
    thesis_baselines,
    thesis_cases,
    thesis_picture,
    thesis_report,
    thesis_tables,
)
from tools.benchmarks.thesis_cases import DISTRIBUTED, QUALITY, SAMPLED, SAMPLERS, Case, Run, plan
from tools.benchmarks.thesis_measurements import Benchmark, time_collection, train

pytestmark = pytest.mark.study

ABOUT = {"command": "python -m it", "commit": "abc", "processors": 2, "jobs": 1}


def curve(*errors):
    """Evaluations every 10 iterations; the MSLE is a tenth of the MSE."""
    return [
        {"iteration": 10 * (number + 1), "mse": error, "msle": error / 10}
        for number, error in enumerate(errors)
    ]


def run_record(run, *errors):
    return {
        "experiment": run.experiment,
        "agent": run.agent,
        "function": run.case.function,
        "dimensions": run.case.dimensions,
        "free": run.case.free,
        "sampler": run.sampler,
        "seed": run.seed,
        "workers": run.workers,
        "iterations": 10 * len(errors),
        "environment_steps": 1,
        "curve": curve(*errors),
        "seconds": {"collecting": 9.0, "waiting": 2.0, "broadcasting": 0.5, "training": 1.5},
        "experience_sha256": f"experience {run.seed}",
        "policy_sha256": f"policy {run.seed}",
    }


def baseline_record(case, name, seed, error):
    return {
        "agent": name,
        "function": case.function,
        "dimensions": case.dimensions,
        "free": case.free,
        "seed": seed,
        "mse": error,
        "msle": error / 10,
        "microseconds_per_query": 5.0,
    }


def timing(workers, waiting, broadcasting, iterations=10):
    seconds = {"collecting": 4.0, "broadcasting": broadcasting, "waiting": waiting, "training": 1.0}
    return {
        "function": "ackley",
        "workers": workers,
        "timed_iterations": iterations,
        "seconds": seconds,
    }


# 20 evaluations: a tenth of them is two.
FALLING = (8, 4, *[3] * 16, 2, 1)
TIMINGS = [timing(0, 4.0, 0.0), timing(2, 4.0, 1.0, iterations=20)]


@pytest.fixture
def records():
    """Both seeds; those of the second end at errors three times as great."""
    runs = [
        run_record(one, *(error * (1 + 2 * seed) for error in FALLING))
        for seed in (0, 1)
        for one in plan(["ppo"], seed)
    ]
    baselines = [
        baseline_record(case, name, seed, error)
        for case in QUALITY
        for name, seed, error in [("constant", 0, 7.0), ("random", 0, 20.0), ("random", 1, 40.0)]
    ]
    return runs, baselines


def test_the_ends_of_a_training_by_hand():
    found = thesis_report.figures(curve(*FALLING), "mse")
    # (8 - 4)² / 4 and (2 - 1)² / 4.
    assert found == {
        "first_mean": 6,
        "first_variance": 4,
        "last_mean": 1.5,
        "last_variance": 0.25,
        "best": 1,
    }
    assert thesis_report.figures(curve(*FALLING), "msle")["last_mean"] == pytest.approx(0.15)


def test_rho_by_hand():
    """0.4 s an iteration waiting in process; with two, 0.2 s and 0.05 s broadcasting."""
    alone, two = thesis_report.rho(TIMINGS)
    assert (alone["rho"], alone["rho_star"], alone["waiting_ms"]) == (1, 1, pytest.approx(400))
    assert two["rho"] == pytest.approx(2)
    assert two["rho_star"] == pytest.approx(0.4 / 0.25)


def test_the_plan_of_a_seed():
    runs = plan(["ppo", "reinforce"], 3)
    assert len(runs) == len(set(runs)) == len(SAMPLED) * len(SAMPLERS) + 2 + 2 * len(QUALITY)
    assert {one.agent for one in runs if one.experiment != "quality"} == {"ppo"}
    assert {one.seed for one in runs} == {3}
    assert len({one.name for one in runs}) == len(runs)
    (others,) = [one for one in runs if one.workers]
    assert others.name == "distributed-ppo-rotated_rosenbrock-random-seed-3-2-workers"
    assert [case.measure for case in QUALITY] == ["mse", "msle", "mse", "mse", "msle", "msle"]


def test_the_report(records, tmp_path):
    thesis_report.write(TIMINGS, *records, ABOUT, tmp_path)
    text = (tmp_path / "table.md").read_text()
    # Seed 1 has three times seed 0's errors: 1.5 and 4.5 at the end, variances 0.25 and 2.25.
    ours = "12 (6..18) | 20 (4..36) | 3 (1.5..4.5) | 1.2 (0.25..2.2) | 2 (1..3)"
    assert f"| random | {ours} |\n| random, thesis | 1.6 | 3.6 | 0.6 | 0.2 | 0.018 |" in text
    assert "| ackley | 2 | 200.00 | 50.00 | 200.00 | 50.00 | 2.00 | 1.60 | 1.96 | 1.95 |" in text
    assert "2 of 2 runs on rotated rosenbrock with 2 processes have the experience" in text
    assert "| ppo | 3 (1.5..4.5) | 2 | 4 s training |" in text
    assert "| random | 30 (20..40) | 2 | 5 µs a query |" in text
    assert "`python -m it` at commit abc" in text
    table = json.loads((tmp_path / "table.json").read_text())
    assert (table["seeds"], table["iterations"]["quality"]) == ([0, 1], 200)
    assert (tmp_path / "thesis.png").read_bytes()[:4] == b"\x89PNG"
    first = (tmp_path / "thesis.svg").read_bytes()
    thesis_report.write(TIMINGS, *records, ABOUT, tmp_path)
    assert (tmp_path / "thesis.svg").read_bytes() == first


def test_another_hash_is_not_the_same_run(records):
    runs, baselines = records
    next(one for one in runs if one["workers"])["policy_sha256"] = "another"
    found = thesis_report.summarise(TIMINGS, runs, baselines, ABOUT)["distributed"]
    assert (found["runs"], found["identical"]) == (2, 1)


def test_curves_are_thinned_to_means():
    points = thesis_picture.thin(curve(*range(120)), "mse")
    # Three evaluations a point.
    assert points[:2] == [(30, 1), (60, 4)] and len(points) == 40
    assert len(thesis_picture.thin(curve(1, 2), "mse")) == 2


def test_the_supervised_network_learns_the_minima():
    from environments.learn_to_optimize.functions import make_objective

    choose = thesis_baselines.fit(make_objective("shifted_sphere"), 0, [8])
    # sin(pi c / 2) / 2 at c = 1/3.
    assert choose([[1 / 3]])[0, 0] == pytest.approx(0.25, abs=0.02)


def test_baselines_by_function():
    assert thesis_baselines.names_of(Case("ackley"))[-1] == "scipy"
    assert thesis_baselines.names_of(QUALITY[-1])[-1] == "cma"


def arguments(output, *more):
    small = ("num_chunks=2", "episodes_per_chunk=4", "hidden_sizes=4", "checkpoint_every=20")
    settings = [word for one in small for word in ("--set", one)]
    fewer = [
        *("--seeds", "1", "--workers-list", "1", "--agents", "reinforce"),
        *("--iterations", "20", "--short-iterations", "10", "--timing-iterations", "2"),
    ]
    return ["--output", str(output), *fewer, *settings, *more]


def run(output, *more):
    thesis_tables.run(thesis_tables.parse_arguments(arguments(output, *more)))
    return json.loads((output / "table.json").read_text())


@pytest.fixture
def small(monkeypatch):
    """Two functions, one sampler, and none that waits."""
    few = (DISTRIBUTED, Case("shifted_sphere"))
    changes = {"QUALITY": few, "SAMPLED": few[1:], "SAMPLERS": ("random",)}
    for module in (thesis_cases, thesis_picture, thesis_report, thesis_tables):
        for name in changes.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, changes[name])
    monkeypatch.setattr(thesis_tables, "TIMED_FUNCTIONS", {"ackley": 1})
    monkeypatch.setattr(shared, "commit", lambda: "abc")


def test_what_is_measured_is_measured_once(no_saved_models, tmp_path):
    """A training run and a timing, each in this process; the second time they are read."""
    settings = {"num_chunks": 2, "episodes_per_chunk": 4, "hidden_sizes": [4]}
    benchmark = Benchmark(tmp_path, settings, {"quality": 2})
    one = Run("quality", "reinforce", Case("shifted_sphere"), "random", 0)
    record = train(benchmark, one)
    assert record.keys() == run_record(one).keys()
    assert record["iterations"] == 2 and record["environment_steps"] == 2 * 8 * 2
    timed = time_collection(benchmark, "reinforce", "ackley", 0, 2)
    assert timed.keys() - {"settings"} == timing(0, 4.0, 0.0).keys()
    assert timed["timed_iterations"] == 2 and timed["seconds"]["collecting"] > 0
    assert train(benchmark, one) == record
    assert time_collection(benchmark, "reinforce", "ackley", 0, 2) == timed
    # Other settings are another benchmark.
    with pytest.raises(UserError, match="name another directory with --output"):
        time_collection(benchmark, "reinforce", "ackley", 0, 3)


def test_what_is_run_for_the_tables(small, tmp_path, monkeypatch):
    """Trainings and timings stand in for those that take long; the baselines are real."""
    trained, timed = [], []

    def train_fn(benchmark, one):
        trained.append((one.name, benchmark.plan(one).settings["loop"].iterations))
        return run_record(one, *FALLING)

    def time_fn(benchmark, agent, function, workers, iterations):
        timed.append((agent, function, workers, iterations))
        return timing(workers, 4.0, 1.0, iterations)

    monkeypatch.setattr(thesis_tables, "train", train_fn)
    monkeypatch.setattr(thesis_tables, "time_collection", time_fn)
    table = run(tmp_path / "out")
    assert timed == [("reinforce", "ackley", 0, 2), ("reinforce", "ackley", 1, 2)]
    # Two functions to learn, one of them with other processes too, and samplers of the other.
    iterations = [number for _, number in trained]
    assert len(trained) == 1 + 2 + 2 and sorted(iterations) == [10] * 3 + [20] * 2
    assert [one["workers"] for one in table["runtime"]] == [0, 1]
    policies = [one["policy"] for one in table["quality"][0]["rows"]]
    assert policies == ["reinforce", "constant", "random", "supervised", "scipy"]
    assert all(one["error"]["mean"] >= 0 for each in table["quality"] for one in each["rows"])
    # Finished: no baseline is measured again.
    monkeypatch.setattr(thesis_baselines, "evaluate", None)
    assert run(tmp_path / "out") == table


@pytest.mark.slow
def test_a_tiny_run(small, tmp_path):
    table = run(tmp_path / "out")
    assert table["distributed"]["identical"] == table["distributed"]["runs"] == 1
    assert [one["workers"] for one in table["runtime"]] == [0, 1]
    policies = [one["policy"] for one in table["quality"][0]["rows"]]
    assert policies == ["reinforce", "constant", "random", "supervised", "scipy"]
    assert all(one["error"]["mean"] >= 0 for each in table["quality"] for one in each["rows"])
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1 + 2 + 2
    assert table["iterations"] == {"samplers": 10, "distributed": 10, "quality": 20}
    # Finished: nothing is done again.
    assert run(tmp_path / "out") == table
    # Other settings are another benchmark.
    with pytest.raises(UserError, match="name another directory with --output"):
        run(tmp_path / "out", "--timing-iterations", "3")


def test_samplers_that_ask_the_policy_have_it_learn_where_it_is_unsure(tmp_path):
    benchmark = Benchmark(tmp_path)
    asked = {
        sampler: benchmark.plan(Run("samplers", "ppo", Case("ackley"), sampler, 0))
        .settings["agent"]
        .state_dependent_std
        for sampler in SAMPLERS
    }
    assert asked == {
        "random": False,
        "latin_hypercube": False,
        "uncertainty": True,
        "heterogeneous": True,
    }


def test_names_of_agents_are_checked(tmp_path, capsys):
    with pytest.raises(SystemExit):
        thesis_tables.parse_arguments(arguments(tmp_path, "--agents", "ppo,nobody"))
    assert "expected some of ppo,reinforce, found 'ppo,nobody'" in capsys.readouterr().err
