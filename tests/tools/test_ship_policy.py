"""A trained policy becomes the installation's."""

from __future__ import annotations

import json
import shutil

import pytest

from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.tensor_graphs import shipped as of_graphs
from tools import ship_policy
from tools.studies import learning


@pytest.fixture
def workdir(tmp_path):
    shutil.copytree(shipped.DIRECTORY, tmp_path / "run" / "policy")
    return tmp_path / "run"


def write_record(directory, name, about, measured):
    path = directory / "records" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "measured": measured, "wall_s": 1.0}))


def write_ladder(directory, policy_sha256):
    """A plain build of 100 bytes of code and as many of tables, and one by the policy: 90, 100."""
    for way, digest, code in (("-Oz", "", 100), ("policy", policy_sha256, 90)):
        sizes = {"text_bytes": code, "unwind_bytes": 100, "rodata_bytes": 0, "file_bytes": 300}
        about = {"rung": "gc-icf", "project": "a", "compiler": "clang-22", "way": way}
        about |= {"policy_sha256": digest, "threshold": None}
        measured = {"images": {"a.so": sizes}, "cpu_s": 10.0, "instructions": None}
        write_record(directory, way, about, measured)


def test_the_policy_goes_along_with_its_ladder(workdir, tmp_path, monkeypatch, capsys):
    write_ladder(tmp_path / "ladder", load_policy(shipped.NAME).fingerprint)
    before = (shipped.DIRECTORY / "policy.json").read_bytes()
    monkeypatch.setattr(shipped, "DIRECTORY", tmp_path / "shipped")
    shipped.DIRECTORY.mkdir()
    words = [str(workdir), "--ladder", str(tmp_path / "ladder"), "--command", "tfrl train"]
    assert ship_policy.main(words) == 0
    assert (shipped.DIRECTORY / "policy.json").read_bytes() == before
    made_by = json.loads((shipped.DIRECTORY / "made_by.json").read_text())
    (row,) = made_by["ladder"]
    assert (row["code"], row["tables"], row["loaded"]) == pytest.approx((-10, 0, -5))
    write_ladder(tmp_path / "ladder", "of another policy")
    assert ship_policy.main(words) == 1
    assert "expected records of the study ladder" in capsys.readouterr().err


def test_one_of_tensor_graphs_goes_along_with_what_it_saves(tmp_path, monkeypatch):
    """Beside a search; what another policy saves stays behind."""
    policy = tmp_path / "run" / "policy"
    shutil.copytree(of_graphs.DIRECTORY, policy)
    digests = {str(policy): learning.digest_of(str(policy)), "regions": "", "other": "x"}
    for number, (name, digest) in enumerate(digests.items()):
        play = {"model": "m", "limit_s": 4.0, "percent": -number, "seconds": 0.5}
        about = {"policy": name, "policy_sha256": digest}
        write_record(tmp_path / "graphs", number, about, {"plays": [play]})
    monkeypatch.setattr(of_graphs, "DIRECTORY", tmp_path / "shipped")
    of_graphs.DIRECTORY.mkdir()
    graphs = ["--graphs", str(tmp_path / "graphs")]
    assert ship_policy.main([str(policy.parent), *graphs, "--command", "tfrl train"]) == 0
    made_by = json.loads((of_graphs.DIRECTORY / "made_by.json").read_text())
    rows = [(row["policy"], row["percent"]) for row in made_by["graphs"]]
    assert rows == [("shipped", 0), ("regions", -1)]
