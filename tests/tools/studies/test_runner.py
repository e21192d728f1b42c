"""The runner measures each trial once, goes on, and tells what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from environments.errors import UserError
from tfrl_systems.experiments import Reporter
from tfrl_systems.settings import option
from tools.studies import __main__ as command_line
from tools.studies import runner
from tools.studies.study import Picture, Study, Table, Trial, mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked for.

    Attributes:
      factor: of the seeds.
    """

    factor: int = option(10, metavar="N")


def trials(options):
    about = {"factor": options.factor, "label": "x"}
    return [Trial(f"t{seed}", {"seed": seed, **about}) for seed in range(3)]


def points(records):
    for record in records:
        about = {"panel": record["label"], "line": record["seed"]}
        yield {**about, "iteration": 1, "value": record["product"]}


@pytest.fixture
def measured(monkeypatch):
    """What was measured, in order, by a study that multiplies; it stops at a negative product."""
    calls = []

    def measure(about, workdir):
        calls.append((about["seed"], workdir.name))
        product = about["seed"] * about["factor"]
        if product < 0:
            raise UserError("a negative product")
        return {"product": product}

    study = Study(
        "Products.\n\nOf seeds.",
        Options,
        trials,
        measure,
        [Table("Products.", ("factor",), {"product": mean("product", "{:g}")})],
        Picture("curve", "v", points),
        is_wrong=lambda record: record["product"] == 40,
    )
    monkeypatch.setattr(runner, "find_study", lambda name: study)
    return calls


def test_each_trial_is_measured_once(measured, study, tmp_path):
    status, text, records = study("products")
    assert status == 0 and "| 10 | 10 (0..20) |" in text
    assert text.startswith("`python -m tools.studies products --output ")
    assert measured == [(0, "t0"), (1, "t1"), (2, "t2")]
    assert records["t2"]["measured"]["product"] == 20 and records["t2"]["about"]["factor"] == 10
    picture = tmp_path / "out" / "curve.svg"
    drawn = picture.read_bytes()
    (tmp_path / "out" / "records" / "t1.json").unlink()
    assert study("products")[1:] != (text, records)  # it took another time
    assert measured[3:] == [(1, "t1")] and picture.read_bytes() == drawn
    # Other settings need another directory.
    status, _, records = study("products", "--factor=3")
    assert status == 1 and len(measured[4:]) == 0 and len(records) == 3


def test_what_was_measured_before_a_failure_stays(measured, study, tmp_path):
    with pytest.raises(UserError, match="a negative product"):
        runner.run("products", Options(factor=-1), tmp_path / "out", "it", 1, Reporter())
    assert [path.stem for path in (tmp_path / "out" / "records").glob("*")] == ["t0"]
    assert "| -1 | 0 |" in (tmp_path / "out" / "table.md").read_text()


def test_a_record_that_shows_a_fault_is_an_exit_status(measured, study):
    with pytest.raises(SystemExit) as ended:
        study("products", "--factor=20")
    assert ended.value.code == 1


@pytest.mark.ci
def test_trials_side_by_side(tmp_path):
    """Processes find the study by its name; nothing of it travels."""
    few = {"models": ("squeezenet-1.1",), "seconds": (0.1,), "objective": "analytic"}
    options = runner.find_study("graphs").options(policies=("greedy", "taso"), **few)
    records = runner.run("graphs", options, tmp_path, "it", 2, Reporter())
    assert [record["policy"] for record in records] == ["greedy", "taso"]
    assert all(record["plays"][0]["percent"] <= 0 for record in records)


def test_studies_are_listed_and_explain_themselves(capsys):
    assert command_line.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in listed for name in runner.STUDIES)
    for name in runner.STUDIES:
        with pytest.raises(SystemExit):
            command_line.main([name, "--help"])
        assert "--output DIR" in capsys.readouterr().out
    assert command_line.main(["nonsense"]) == 2
    assert "expected one of agents, quality" in capsys.readouterr().err


def test_records_are_whole_or_not_there(measured, tmp_path):
    trial = Trial("one", {"seed": float("nan"), "factor": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        runner.record_of("products", trial, tmp_path)
    assert not (tmp_path / "records" / "one.json").exists()
    trial = Trial("one", {"seed": 1, "factor": 1, "pair": (1, 2)})
    record = runner.record_of("products", trial, tmp_path)
    # A tuple is a list in JSON; it is the same trial all the same.
    assert runner.record_of("products", trial, tmp_path)["about"] == record["about"]
    assert [seed for seed, _ in measured[1:]] == [1]
