"""Tables and JSON of real compiles; what fails is named, and the rest goes on."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def evaluate(tfrl, holdout, cache):
    """Evaluates in this process; by default there is one worker for each processor."""

    def run(*words, corpus=holdout, workers=("--workers", 1)):
        return tfrl("evaluate", "inlining", "--corpus", corpus, "--cache", cache, *workers, *words)

    return run


def test_json_has_the_documented_fields(trained, evaluate):
    names = (trained / "policy", "default", "never")
    words = [word for name in names for word in ("--policy", name)]
    result = evaluate(*words, "--json", workers=()).result
    learned, default, never = result["policies"]
    sizes = {"size_bytes", "default_size_bytes", "exec_bytes", "default_exec_bytes"}
    for policy in (learned, default, never):
        assert policy.keys() >= {"policy", "seconds", *sizes} and policy["modules"] == 2
        assert all(row.keys() >= {"module", "decisions", *sizes} for row in policy["per_module"])
        assert policy["size_bytes"] == sum(row["size_bytes"] for row in policy["per_module"])
        saving = 100 * (1 - policy["size_bytes"] / policy["default_size_bytes"])
        assert policy["reduction_percent"] == pytest.approx(saving)
    assert default["size_bytes"] == default["default_size_bytes"]
    assert not any(any(row["decisions"]) for row in never["per_module"])
    assert result["failures"] == []


def test_without_a_policy_it_is_that_of_the_installation(evaluate):
    (measured,) = evaluate("--json").result["policies"]
    assert measured["policy"] == "shipped" and measured["modules"] == 2


def test_never_worse_keeps_the_smaller_and_says_what_it_cost(evaluate):
    words = ("--policy", "always", "--never-worse")
    (policy,) = evaluate(*words, "--json").result["policies"]
    better, pairs = policy["never_worse"], []
    for row in policy["per_module"]:
        pairs.append((row["size_bytes"], row["default_size_bytes"]))
    assert better["size_bytes"] == sum(map(min, pairs))
    assert better["default_kept"] == sum(size > usual for size, usual in pairs)
    assert better["extra_seconds"] > 0 and better["cpu_ratio"] > 1
    text = evaluate(*words).out
    assert "never worse" in text and "times the CPU time" in text
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:5] == ["policy", "modules", "bytes", "default", "change"]
    assert ["delta", "2"] in [line[:2] for line in lines]


def test_linked_images_beside_the_objects(evaluate):
    words = ("--policy", "always", "--policy", "default", "--link")
    always, default = evaluate(*words, "--json").result["policies"]
    ((image,), (same,)) = always["images"], default["images"]
    assert image["project"] == same["project"] == "delta"
    for part in ("text_bytes", "unwind_bytes", "rodata_bytes", "file_bytes"):
        assert same[part] == same[f"default_{part}"] == image[f"default_{part}"]
    assert image["default_text_bytes"] > 0 < image["file_bytes"]
    lines = evaluate(*words).out.splitlines()
    (header,) = (line for line in lines if line.startswith("always, linked"))
    assert header.split()[2:] == ["text", "unwind", "rodata", "file", "text+unwind+rodata"]


def test_the_image_of_a_sample_is_called_one(evaluate, holdout, tmp_path):
    sample = shutil.copytree(holdout, tmp_path / "sample")
    path = sample / "corpus_description.json"
    described = json.loads(path.read_text())
    described["tfrl"] = {"sources": {"delta": 9}}
    path.write_text(json.dumps(described))
    assert "linked from 2 of 9" in evaluate("--policy", "default", "--link", corpus=sample).err
    assert "linked from" not in evaluate("--policy", "default", corpus=sample).err


def test_a_module_that_fails_is_named_and_the_rest_goes_on(evaluate, holdout, tmp_path):
    damaged = shutil.copytree(holdout, tmp_path / "damaged")
    path = damaged / "delta" / "a.c.bc"
    path.write_bytes(path.read_bytes()[:200])
    ran = evaluate("--policy", "never", "--json", corpus=damaged)
    assert "not compiled: delta/a.c: expected" in ran.err
    assert [failure["module"] for failure in ran.result["failures"]] == ["delta/a.c"]
    assert ran.result["policies"][0]["modules"] == 1
    (damaged / "delta" / "b.cc.bc").write_bytes(b"BC\xc0\xde")
    ran = evaluate("--policy", "never", corpus=damaged)
    assert ran.status == 1 and "found that all 2 failed" in ran.err


def test_a_policy_for_something_else_is_refused(evaluate, trained, tmp_path):
    foreign = shutil.copytree(trained / "policy", tmp_path / "other")
    described = json.loads((foreign / "policy.json").read_text())
    (foreign / "policy.json").write_text(json.dumps({**described, "environment": "tensor_graphs"}))
    ran = evaluate("--policy", foreign)
    assert ran.status == 1
    assert "expected a policy for inlining, found one for tensor_graphs" in ran.err
