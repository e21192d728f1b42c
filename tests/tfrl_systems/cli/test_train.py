"""Training for real: what it leaves, where it is the same, and which policies it begins with."""

from __future__ import annotations

import json
import shutil

import pytest

from environments.inlining.plugin import compiler
from tests.requirements import needs_programs, skip_if
from tests.tfrl_systems.conftest import QUICK, as_words, train_arguments
from tfrl_systems.systems.inlining import workers
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

FIELDS = {
    *("environment", "agent", "seed", "iterations", "environment_steps", "seconds", "settings"),
    *("experience_sha256", "policy_sha256", "evaluation", "versions"),
}


def read_result(workdir) -> dict:
    return json.loads((workdir / "result.json").read_text())


def test_a_run_leaves_what_the_help_says(trained):
    result = read_result(trained)
    assert result.keys() >= FIELDS
    assert (result["environment"], result["agent"], result["seed"]) == ("inlining", "bc_max", 0)
    assert result["environment_steps"] > 0 and result["seconds"]["collecting"] > 0
    assert [iteration["number"] for iteration in result["evaluation"]["iterations"]] == [1, 2, 3]
    assert result["evaluation"]["holdout"]["contexts"] == 2
    assert result["policy_sha256"] == CallSitePolicy.load(trained / "policy").fingerprint
    names = {path.name for path in trained.iterdir()}
    assert names == {"checkpoints", "policy", "result.json", "run.json", "tensorboard"}
    described = json.loads((trained / "policy" / "policy.json").read_text())
    chosen = result["evaluation"]["chosen_iteration"]
    assert described["environment"] == "inlining" and described["iteration"] == chosen
    scores = [iteration["score"] for iteration in result["evaluation"]["iterations"]]
    # Of the corpus one project was set aside to choose by; the default is always a candidate.
    assert max(scores) == scores[chosen - 1] >= 0
    validation = result["evaluation"]["validation"]
    assert len(validation["saving_percent_by_group"]) == 1
    assert described["run"]["corpus_sha256"] == described["corpus_sha256"]


def test_tensorboard_shows_each_policy_once_under_the_run_s_name(trained):
    from tensorflow.python.summary import summary_iterator

    points: dict[tuple[str, str], list[int]] = {}
    for path in (trained / "tensorboard").rglob("events.*"):
        run = path.parent.relative_to(trained / "tensorboard").as_posix()
        for event in summary_iterator.summary_iterator(str(path)):
            for value in event.summary.value:
                points.setdefault((run, value.tag), []).append(event.step)
    name = trained.name
    assert points[name, "settings"] == [0]
    assert sorted(points[name, "fit/loss"]) == [1, 2, 3]
    projects = {"learned from": "alpha", "held out": "delta"}
    # An iteration explores around the policy of the one before, and measures its own.
    for part, steps in (("learned from", [0, 1, 2]), ("held out", [1, 2, 3])):
        for tag in (
            "saving_percent",
            f"saving_percent_by_group/{projects[part]}",
            "contexts_worse",
            "share_of_decisions_changed",
            "histogram/saving_percent",
            "histogram/share_of_decisions_changed",
        ):
            assert sorted(points[f"{name}/{part}", tag]) == steps, (part, tag)


def test_the_same_modules_held_out_are_a_warning(corpus, cache, tfrl, tmp_path):
    ran = tfrl(*train_arguments(corpus, corpus, cache, tmp_path / "run"), *("--iterations", "1"))
    assert ran.status == 0 and "warning: 5 of the modules in --holdout" in ran.err


@pytest.mark.ci
@needs_programs("clang-22")
def test_a_clang_with_the_policies_inside_learns_what_its_channel_does(
    tfrl, corpus, holdout, plugin_cache, tmp_path, monkeypatch
):
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
        results.append(read_result(tmp_path / name))
    assert "clang-22 has the policies inside" in logs[0]
    assert "clang-22 is asked at each call site" in logs[1] and "no headers here" in logs[1]
    for figure in ("policy_sha256", "experience_sha256", "environment_steps"):
        assert results[0][figure] == results[1][figure]


@pytest.fixture
def contrary(tfrl, saving, cache, tmp_path):
    """An actor that begins, and here ends, with the opposite of LLVM's own decisions."""
    ran = tfrl(
        *("train", "inlining", "--agent", "reinforce", "--corpus", saving, "--cache", cache),
        *("--workdir", tmp_path / "reinforce", "--workers", 1, "--iterations", 1),
        *as_words(objective="object", num_chunks=1, episodes_per_chunk=1, hidden_sizes=4),
        *as_words(default_probability=0.05, learning_rate=1e-9, scope="all", group=2),
    )
    assert ran.status == 0, ran.err
    return tmp_path / "reinforce" / "policy"


@pytest.fixture
def imitate(tfrl, saving, cache, tmp_path):
    def run(*baselines, more=()):
        names = ",".join(map(str, ("default", *baselines)))
        return tfrl(
            *("train", "inlining", "--agent", "bc_max", "--corpus", saving, "--validation", saving),
            *("--cache", cache, "--workdir", tmp_path / "run", "--workers", 1, "--iterations", 1),
            *as_words(objective="object", label_objective="object", explore="false"),
            *(*as_words(baselines=names), *QUICK, *more, "--json"),
        )

    return run


@pytest.mark.ci
def test_the_best_of_learned_baselines_is_imitated(
    imitate, contrary, trained, tfrl, saving, cache, tmp_path
):
    ran = imitate(contrary, trained / "policy")
    evaluation = tfrl(
        *("evaluate", "inlining", "--policy", contrary, "--policy", trained / "policy"),
        *("--corpus", saving, "--cache", cache, "--json"),
    ).json
    of_each = [
        {
            row["module"]: (row["size_bytes"], row["default_size_bytes"])
            for row in policy["per_module"]
        }
        for policy in evaluation["policies"]
    ]
    best = [min(size for sizes in of_each for size in sizes[name]) for name in of_each[0]]
    (record,) = ran.result["evaluation"]["iterations"]
    assert record["oracle_cost"] == sum(best) < record["default_cost"]
    # Resuming needs the same policies, not only the same directories.
    told_of = ran.result["settings"]["baselines_sha256"]
    assert told_of[str(trained / "policy")] == CallSitePolicy.load(trained / "policy").fingerprint
    assert set(told_of) == {str(contrary), str(trained / "policy")}
    assert imitate(contrary, trained / "policy", more=["--resume"]).status == 0
    shutil.rmtree(contrary)
    shutil.copytree(trained / "policy", contrary)
    ran = imitate(contrary, trained / "policy", more=["--resume"])
    assert ran.status == 1 and "expected to resume with baselines_sha256 = " in ran.err
