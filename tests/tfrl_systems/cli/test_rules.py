"""Rules from the command line."""

from __future__ import annotations

import collections
import json

import pytest

LIE = {
    "name": "lie",
    "source": ["(Sub ?x ?y)"],
    "target": ["(Sub ?y ?x)"],
    "conditions": [],
    "restrictions": [],
    "verified_by": "identity testing",
}
TRUTH = {**LIE, "name": "truth", "target": ["(Neg (Sub ?y ?x))"]}


def write(path, *rules):
    path.write_text(json.dumps({"rules": list(rules)}))
    return path


def test_list_tells_of_onnxruntimes_own_operators_on_request(tfrl):
    usual, more = (tfrl("rules", "list", *flag, "--json").json for flag in ((), ("--contrib",)))
    added = more["rules"][len(usual["rules"]) :]
    assert more["rules"][: len(usual["rules"])] == usual["rules"] and added
    assert all(rule["name"].startswith("contrib_") and rule["verified_by"] for rule in added)


def test_list_tells_what_is_shipped(tfrl):
    listed = tfrl("rules", "list", "--json").json
    assert len(listed["rules"]) >= 100
    for rule in listed["rules"]:
        fields = {"name", "source", "target", "conditions", "verified_by"}
        assert fields <= set(rule) and rule["verified_by"]
        assert rule["instances"] >= 1000
        assert rule["may_change_nonfinite"] in (True, False)
        assert rule["may_lose_digits"] in (True, False)
        assert rule["types"][0] == "float"
    assert "command" in listed["made"]
    counts = collections.Counter(rule["origin"] for rule in listed["rules"])
    assert counts.keys() == {"generated", "written"}
    marked = sum(rule["may_change_nonfinite"] for rule in listed["rules"])
    inexact = sum(rule["may_lose_digits"] for rule in listed["rules"])
    movers = sum(len(rule["types"]) == 4 for rule in listed["rules"])
    out = tfrl("rules", "list").out
    assert out.splitlines()[-1] == (
        f"{len(listed['rules'])} rules: {counts['generated']} generated, "
        f"{counts['written']} written; {marked} may change NaN or infinity, "
        f"{inexact} may lose digits"
    )
    assert out.count("    may lose digits\n") == inexact > 0
    assert out.count("    types: float, signed, unsigned, other\n") == movers > 0
    assert out.count("    may change NaN or infinity\n") == marked


SIDES = {
    # 1 / 0 * 0 is NaN, and 1 is not.
    "NaN": {
        "source": ["(Mul (Div ?x ?y) ?y)"],
        "target": ["?x"],
        "conditions": ['(in (dtype ?x) (list "float32" "float64"))'],
    },
    # x - c is exact where the two are near each other; x · s and c · s are rounded.
    "digits": {
        "source": ["(Mul (Sub ?x ?c) ?s)"],
        "target": ["(Sub (Mul ?x ?s) (Mul ?c ?s))"],
        "may_change_nonfinite": True,
    },
    # |x · x| is not x · x where the product wraps around.
    "integers": {"source": ["(Abs (Mul ?x ?x))"], "target": ["(Mul ?x ?x)"]},
}


@pytest.mark.parametrize(
    ("sides", "field", "truth", "lie", "refusal"),
    [
        ("NaN", "may_change_nonfinite", True, False, "changes NaN or infinity"),
        ("digits", "may_lose_digits", True, False, "loses digits"),
        ("integers", "types", ["float", "unsigned"], ["float", "signed"], "is not right for these"),
    ],
)
def test_verify_tells_what_a_file_denies(tfrl, tmp_path, sides, field, truth, lie, refusal):
    rule = {"name": "rule", **SIDES[sides]}
    options = ["--instances", 40]
    path = write(tmp_path / "honest.json", {**rule, field: truth})
    (verdict,) = tfrl("rules", "verify", path, *options, "--json").json["rules"]
    assert verdict["right"] and verdict[field] == truth
    path = write(tmp_path / "lying.json", {**rule, field: lie})
    ran = tfrl("rules", "verify", path, *options)
    assert ran.status == 1 and f"rule: {refusal}" in ran.err


def test_verify_tells_which_are_wrong(tfrl, tmp_path):
    path = write(tmp_path / "rules.json", LIE, TRUTH)
    ran = tfrl("rules", "verify", path, "--instances", 50)
    assert ran.status == 1 and "1 of 2 rules are right" in ran.out
    assert "lie: wrong for" in ran.err and "truth" not in ran.err
    verdicts = tfrl("rules", "verify", path, "--instances", 50, "--json").json
    assert [(verdict["name"], verdict["right"]) for verdict in verdicts["rules"]] == [
        ("lie", False),
        ("truth", True),
    ]
    options = ["--instances", 50, "--seed", 3, "--seed", 4, "--jobs", 2]
    ran = tfrl("rules", "verify", write(tmp_path / "one.json", TRUTH), *options)
    assert ran.status == 0 and "1 of 1 rules are right, in 100 instances" in ran.out


@pytest.mark.ci
def test_generate_writes_what_can_be_read(tfrl, tmp_path):
    path = tmp_path / "made.json"
    options = ["--vocabulary", "order", "--max-size", 1, "--without-written", "--instances", 20]
    ran = tfrl("rules", "generate", "-o", path, *options)
    assert ran.status == 0 and "rules" in ran.out
    listed = tfrl("rules", "list", path, "--json").json
    assert {rule["origin"] for rule in listed["rules"]} == {"generated"}
    assert "(Max ?x ?x)" in {rule["source"][0] for rule in listed["rules"]}
    provenance = listed["made"]
    assert provenance["command"].startswith(
        "tfrl rules generate -o made.json --seed 0 --max-size 1"
    )
    assert provenance["stages"]["order"]["rules"] == len(listed["rules"]) == provenance["rules"]
    again = tmp_path / "again.json"
    tfrl("rules", "generate", "-o", again, *options)
    assert again.read_text() == path.read_text().replace("-o made.json", "-o again.json")
    reused = tmp_path / "reused.json"
    unsaid = tmp_path / "unsaid.json"
    unsaid.write_text(json.dumps({**json.loads(path.read_text()), "made": {}}))
    for earlier in (path, unsaid):
        tfrl("rules", "generate", "-o", reused, "--reuse", earlier, *options[-3:])
        assert tfrl("rules", "list", reused, "--json").json["rules"] == listed["rules"]


def test_import_counts_and_gives_reasons(tfrl, tmp_path):
    relu_of_relu = bytes.fromhex(
        # rule: Relu(Relu(x)) => Relu(x), then the same with x + x in the place of the result
        "0a43"
        "0a110808120d08ffffffffffffffffff011000"
        "0a080808120408001000"
        "12110808120d08ffffffffffffffffff011000"
        "1a08" "0801" "1000" "1800" "2000"
    )  # fmt: skip
    path = tmp_path / "graph_subst.pb"
    path.write_bytes(_with_length(relu_of_relu))
    ran = tfrl("rules", "import", path, "-o", tmp_path / "taso.json", "--instances", 60, "--json")
    assert ran.json == {"accepted": 1, "rejected": []}
    listed = tfrl("rules", "list", tmp_path / "taso.json", "--json").json
    (rule,) = listed["rules"]
    assert rule["source"] == ["(Relu (Relu ?x1))"]
    assert rule["origin"] == "imported" and rule["may_change_nonfinite"] is False


def _with_length(message):
    """The first two bytes say the kind and the length of what follows."""
    return message[:1] + bytes([len(message) - 2]) + message[2:]
