"""Tables and JSON of real compiles; what fails is named, and the rest goes on."""

from __future__ import annotations

import json
import shutil

import pytest

# Compiles in this process; by default there is one worker for each processor.
ONE_WORKER = ("--workers", "1")
FIELDS = {
    "policy",
    "modules",
    "size_bytes",
    "default_size_bytes",
    "reduction_percent",
    "seconds",
    "per_module",
    "exec_bytes",
    "default_exec_bytes",
}
MODULE_FIELDS = {
    "module",
    "size_bytes",
    "default_size_bytes",
    "exec_bytes",
    "default_exec_bytes",
    "decisions",
}


def test_json_has_the_documented_fields(trained, holdout, cache, tfrl):
    ran = tfrl(
        *("evaluate", "inlining", "--policy", trained / "policy", "--policy", "default"),
        *("--policy", "never", "--corpus", holdout, "--cache", cache, "--json"),
    )
    learned, default, never = ran.result["policies"]
    for policy in (learned, default, never):
        assert policy.keys() >= FIELDS and policy["modules"] == 2
        assert all(row.keys() >= MODULE_FIELDS for row in policy["per_module"])
        assert policy["size_bytes"] == sum(row["size_bytes"] for row in policy["per_module"])
        saving = 100 * (1 - policy["size_bytes"] / policy["default_size_bytes"])
        assert policy["reduction_percent"] == pytest.approx(saving)
    assert default["size_bytes"] == default["default_size_bytes"]
    assert not any(any(row["decisions"]) for row in never["per_module"])
    assert ran.result["failures"] == []


def test_without_a_policy_it_is_that_of_the_installation(holdout, cache, tfrl):
    ran = tfrl("evaluate", "inlining", "--corpus", holdout, "--cache", cache, *ONE_WORKER, "--json")
    (measured,) = ran.json["policies"]
    assert measured["policy"] == "shipped" and measured["modules"] == 2


def test_the_table_names_policies_and_projects(trained, holdout, cache, tfrl):
    ran = tfrl(
        *("evaluate", "inlining", "--policy", "always", "--policy", "default"),
        *("--corpus", holdout, "--cache", cache, *ONE_WORKER),
    )
    assert ran.status == 0
    first = ran.out.splitlines()[0].split()
    assert first[:5] == ["policy", "modules", "bytes", "default", "change"]
    assert any(line.split()[:2] == ["delta", "2"] for line in ran.out.splitlines())
    assert "+0.00%" in ran.out


def test_never_worse_keeps_the_smaller_and_says_what_it_cost(holdout, cache, tfrl):
    arguments = ("evaluate", "inlining", "--policy", "always", "--corpus", holdout, *ONE_WORKER)
    ran = tfrl(*arguments, "--cache", cache, "--never-worse", "--json")
    (policy,) = ran.json["policies"]
    better = policy["never_worse"]
    rows = policy["per_module"]
    assert better["size_bytes"] == sum(
        min(row["size_bytes"], row["default_size_bytes"]) for row in rows
    )
    assert better["default_kept"] == sum(
        row["size_bytes"] > row["default_size_bytes"] for row in rows
    )
    assert better["extra_seconds"] > 0 and better["cpu_ratio"] > 1
    text = tfrl(*arguments, "--cache", cache, "--never-worse").out
    assert "never worse" in text and "times the CPU time" in text


def test_linked_images_beside_the_objects(holdout, cache, tfrl):
    policies = ("--policy", "always", "--policy", "default")
    arguments = ("evaluate", "inlining", *policies, "--corpus", holdout, "--cache", cache, "--link")
    arguments += ONE_WORKER
    always, default = tfrl(*arguments, "--json").json["policies"]
    ((image,), (same,)) = always["images"], default["images"]
    assert image["project"] == same["project"] == "delta"
    for part in ("text_bytes", "unwind_bytes", "rodata_bytes", "file_bytes"):
        assert same[part] == same[f"default_{part}"] == image[f"default_{part}"]
    assert image["default_text_bytes"] > 0 < image["file_bytes"]
    lines = tfrl(*arguments).out.splitlines()
    (header,) = (line for line in lines if line.startswith("always, linked"))
    assert header.split()[2:] == ["text", "unwind", "rodata", "file", "text+unwind+rodata"]


def test_the_image_of_a_sample_is_called_one(holdout, tmp_path, tfrl, cache):
    sample = tmp_path / "sample"
    shutil.copytree(holdout, sample)
    path = sample / "corpus_description.json"
    described = json.loads(path.read_text())
    described["tfrl"] = {"sources": {"delta": 9}}
    path.write_text(json.dumps(described))
    arguments = ("evaluate", "inlining", "--policy", "default", "--cache", cache, *ONE_WORKER)
    assert "linked from 2 of 9" in tfrl(*arguments, "--corpus", sample, "--link").err
    assert "linked from" not in tfrl(*arguments, "--corpus", sample).err


def test_a_module_that_fails_is_named_and_the_rest_goes_on(holdout, tmp_path, tfrl, cache):
    damaged = tmp_path / "damaged"
    shutil.copytree(holdout, damaged)
    path = damaged / "delta" / "a.c.bc"
    path.write_bytes(path.read_bytes()[:200])
    arguments = ("evaluate", "inlining", "--policy", "never", "--corpus", damaged, *ONE_WORKER)
    ran = tfrl(*arguments, "--cache", cache, "--json")
    assert ran.status == 0 and "not compiled: delta/a.c: expected" in ran.err
    assert [failure["module"] for failure in ran.json["failures"]] == ["delta/a.c"]
    assert ran.json["policies"][0]["modules"] == 1
    (damaged / "delta" / "b.cc.bc").write_bytes(b"BC\xc0\xde")
    ran = tfrl(*arguments, "--cache", cache)
    assert ran.status == 1 and "found that all 2 failed" in ran.err


def test_a_policy_for_something_else_is_refused(trained, holdout, tmp_path, tfrl):
    foreign = tmp_path / "other"
    shutil.copytree(trained / "policy", foreign)
    described = json.loads((foreign / "policy.json").read_text())
    (foreign / "policy.json").write_text(json.dumps({**described, "environment": "tensor_graphs"}))
    ran = tfrl("evaluate", "inlining", "--policy", foreign, "--corpus", holdout)
    assert ran.status == 1
    assert "expected a policy for inlining, found one for tensor_graphs" in ran.err
