"""BC-Max begins with policies that other runs learned, and notices when they change."""

from __future__ import annotations

import shutil

import pytest

from tests.environments.inlining.exploration.test_explore import SAVING
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls, write_corpus
from tests.tfrl_systems.conftest import QUICK
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

OBJECTS = ("--set", "objective=object")


@pytest.fixture(scope="module")
def saving(tmp_path_factory):
    """A corpus in one module of which LLVM's own decisions can be bettered."""
    modules = {"alpha/saving.c": SAVING, "alpha/hand.c": HAND_WORKED, "beta/many.c": many_calls(7)}
    return write_corpus(tmp_path_factory.mktemp("baselines") / "corpus", modules)


@pytest.fixture
def contrary(tfrl, saving, cache, tmp_path):
    """An actor that begins, and here ends, with the opposite of LLVM's own decisions."""
    ran = tfrl(
        *("train", "inlining", "--agent", "reinforce", "--corpus", saving, "--cache", cache),
        *("--workdir", tmp_path / "reinforce", "--workers", 1, "--iterations", 1, *OBJECTS),
        *("--set", "num_chunks=1", "--set", "episodes_per_chunk=1", "--set", "hidden_sizes=4"),
        *("--set", "default_probability=0.05", "--set", "learning_rate=1e-9"),
        *("--set", "scope=all", "--set", "group=2"),
    )
    assert ran.status == 0, ran.err
    return tmp_path / "reinforce" / "policy"


@pytest.fixture
def train(tfrl, saving, cache, tmp_path):
    def run(*baselines, more=()):
        names = ",".join(map(str, ("default", *baselines)))
        return tfrl(
            *("train", "inlining", "--agent", "bc_max", "--corpus", saving, "--validation", saving),
            *("--cache", cache, "--workdir", tmp_path / "run", "--workers", 1, "--iterations", 1),
            *(*OBJECTS, "--set", "label_objective=object", "--set", "explore=false"),
            *("--set", f"baselines={names}", *QUICK, *more, "--json"),
        )

    return run


@pytest.mark.ci
def test_the_best_of_learned_baselines_is_imitated(
    train, contrary, trained, tfrl, saving, cache, tmp_path
):
    ran = train(contrary, trained / "policy")
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
    assert train(contrary, trained / "policy", more=["--resume"]).status == 0
    shutil.rmtree(contrary)
    shutil.copytree(trained / "policy", contrary)
    ran = train(contrary, trained / "policy", more=["--resume"])
    assert ran.status == 1 and "expected to resume with baselines_sha256 = " in ran.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "expected a policy directory or one of shipped, default, always"),
        ("a corpus", "expected a policy directory with policy.json"),
    ],
)
def test_a_directory_without_a_policy_is_one_line(train, saving, name, message):
    ran = train(saving if name == "a corpus" else name)
    assert ran.status == 1 and message in ran.err.splitlines()[-1]
