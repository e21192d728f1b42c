"""The rules that are shipped, and files of rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from environments.caches.table import VERIFIED_RULES
from environments.errors import UserError
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules import library
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.language.expressions import Apply, parts
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification import verify as verify_module
from environments.tensor_graphs.rules.verification.verify import needs, verify
from tests.checkout import ROOT, copy_sources
from tests.environments.caches.entries import contents, execute

SHIPPED = rule_files.read()
BY_NAME = {rule.name: rule for rule in SHIPPED.rules}
WITH_CONDITIONS = [
    (rule.name, str(condition)) for rule in SHIPPED.rules for condition in rule.conditions
]


REPEATED = """
            op.Reshape(op.Reshape(x, shape=s), shape=t),
            op.Reshape(x, shape=t),
"""
WHAT_RUNS = """
import json, sys
from environments.tensor_graphs.rules import files
from environments.tensor_graphs.rules.verification import verify as module
verify, module.verify = module.verify, lambda rule, _: verify(rule, 20)
file = files.read()
both = [rule.as_dict() for rules in (file.rules, files.load()) for rule in rules
        if rule.name == sys.argv[1]]
print(json.dumps([both, [rule.name for rule in file.rules if not rule.verified_by]]))
"""


def operators(rule: Rule) -> frozenset[str]:
    expressions = (*rule.source, *rule.target)
    return frozenset(
        part.op for root in expressions for part in parts(root) if isinstance(part, Apply)
    )


# The first rule of each set of operators.
REPRESENTATIVES = [*{operators(rule): rule for rule in reversed(SHIPPED.rules)}.values()]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return VERIFIED_RULES.path


def make(name, source, target, **fields):
    """A rule as files have it."""
    return {"name": name, "source": [source], "target": [target], **fields}


RIGHT = make("right", "(Sub ?x ?y)", "(Neg (Sub ?y ?x))")
LIE = make("lie", "(Sub ?x ?y)", "(Sub ?y ?x)", verified_by="identity testing")


def write(path, *entries):
    path.write_text(json.dumps({"rules": list(entries)}))
    return path


def test_there_are_many_rules_both_written_and_generated():
    different = {canonical(rule) for rule in SHIPPED.rules}
    assert len(different) >= 100
    assert all(rule.verified_by for rule in SHIPPED.rules)
    assert set(SHIPPED.origins.values()) == {rule_files.GENERATED, rule_files.WRITTEN}
    provenance = SHIPPED.provenance
    assert provenance["rules"] == len(SHIPPED.rules)
    assert provenance["without renamings"] == len(different)
    assert sum(counts["rules"] for counts in provenance["stages"].values()) == len(SHIPPED.rules)
    assert provenance["command"].startswith("tfrl rules generate")
    assert [*SHIPPED.instances] == [*BY_NAME] and min(SHIPPED.instances.values()) >= 1000


def test_the_library_is_the_only_place_of_what_was_written():
    written = [rule for rule in SHIPPED.rules if SHIPPED.origins[rule.name] == rule_files.WRITTEN]
    assert [rule.name for rule in written] == [rule.name for rule in library.all_rules()]
    listed = json.loads(rule_files.PATH.read_text())["rules"]
    assert {entry["origin"] for entry in listed} == {rule_files.GENERATED}
    ledger = json.loads(rule_files.LEDGER.read_text())
    all_of_them = library.all_rules(contrib=True)
    assert [*ledger] == [
        *map(rule_files.digest, written),
        *map(rule_files.digest, library.rules_of(library.CONTRIB)),
    ]
    assert [record["rule"] for record in ledger.values()] == [rule.name for rule in all_of_them]


@pytest.fixture
def checkout(tmp_path):
    """A copy of the packages, and a function that edits a rule there and says what runs then."""
    directory = copy_sources(tmp_path / "checkout")
    layout = directory / "environments/tensor_graphs/rules/library/layout.py"
    text = layout.read_text()
    assert text.count(REPEATED) == 1

    def run(edited=REPEATED, added="", name="reshaped_twice"):
        layout.write_text(text.replace(REPEATED, edited) + added)
        environment = {**os.environ, "PYTHONPATH": str(directory)}
        return subprocess.run(
            [sys.executable, "-c", WHAT_RUNS, name],
            cwd=directory,
            env=environment,
            capture_output=True,
        )

    return run


def test_who_edits_a_rule_of_the_library_changes_what_runs(checkout):
    ran = checkout("op.Reshape(op.Reshape(x, shape=t), shape=s), op.Reshape(x, shape=s)")
    (read, loaded), unverified = json.loads(ran.stdout)
    assert read["source"] == loaded["source"] == ["(Reshape (Reshape ?x :shape $t) :shape $s)"]
    # It is listed as not verified, and verified before it runs; the others need nothing.
    assert read["verified_by"] == "" and "identity testing" in loaded["verified_by"]
    assert unverified == ["reshaped_twice"]


def test_a_rule_that_is_added_as_the_guide_says_is_verified_before_it_runs(checkout):
    chapter = (ROOT / "CONTRIBUTING.md").read_text().split("## Adding a rule of")[1]
    added = chapter.split("```python\n")[1].split("```")[0]
    ran = checkout(added=added, name="relu_of_a_square")
    (read, loaded), unverified = json.loads(ran.stdout)
    assert read["source"] == ["(Relu (Mul ?x ?x))"] and unverified == ["relu_of_a_square"]
    assert loaded["verified_by"].startswith("floating point in 80 instances")


def test_a_rule_of_the_library_that_becomes_wrong_is_refused(checkout):
    ran = checkout("op.Reshape(op.Reshape(x, shape=s), shape=t), op.Relu(x)")
    assert ran.returncode and b"rule reshaped_twice is refused: " in ran.stderr


@pytest.fixture
def few_instances(monkeypatch):
    """Has what is loaded verified in fewer instances than usual."""
    monkeypatch.setattr(verify_module, "verify", lambda rule, _: verify(rule, 50))


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(REPRESENTATIVES[::4], id="a few"),
        pytest.param(REPRESENTATIVES, id="some", marks=pytest.mark.ci),
    ],
)
def test_shipped_rules_are_right_in_a_few_instances(rules):
    for rule in rules:
        verdict = verify(rule, 4, seed=6)
        # All points may be where a root has no value.
        assert "wrong for" not in verdict.how, f"{rule.name}: {verdict.how}"
        assert verdict.num_instances >= 4, f"{rule.name}: {verdict.how}"
        assert rule.may_change_nonfinite or not verdict.nonfinite_change, verdict.nonfinite_change
        assert rule.may_lose_digits or not verdict.digit_loss, verdict.digit_loss


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_shipped_rules_survive_1000_instances(name):
    """With a seed that was not asked when the file was made."""
    verdict = verify(BY_NAME[name], 1000, seed=5)
    assert verdict.is_right, verdict.how
    assert verdict.num_instances >= 1000
    assert bool(verdict.nonfinite_change) == BY_NAME[name].may_change_nonfinite
    assert bool(verdict.digit_loss) == BY_NAME[name].may_lose_digits
    assert verdict.types == BY_NAME[name].types


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": ["(= (rank ?x) 2)"]},
        {"restrictions": []},
        {"source": ["(Mul (Relu (MatMul ?x ?w)) ?s)"]},
        {"target": ["(MatMul ?x ?w)"]},
    ],
)
def test_a_rule_that_was_changed_is_refused(tmp_path, change):
    """Its record is of another rule then; which tensors are constants counts, too."""
    path = tmp_path / "rules.json"
    rule_files.write(SHIPPED, path)
    entries = {entry["name"]: entry for entry in json.loads(path.read_text())["rules"]}
    write(path, entries["mul_into_matrix"])
    assert rule_files.read(path).rules == (BY_NAME["mul_into_matrix"],)
    write(path, entries["mul_into_matrix"] | change)
    with pytest.raises(UserError, match="mul_into_matrix was changed after it was verified"):
        rule_files.read(path)


@pytest.mark.parametrize(("name", "condition"), WITH_CONDITIONS)
def test_no_condition_can_be_left_out(name, condition):
    """There is an instance in which the rule is wrong, and that this condition alone excludes.

    It shows that the condition cannot be dropped, and that it cannot be turned into its opposite.
    """
    rule = BY_NAME[name]
    (needed,) = (term for term in rule.conditions if str(term) == condition)
    assert needs(rule, needed, 20_000)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "rules.json"
    rule_files.write(SHIPPED, path)
    assert rule_files.read(path) == SHIPPED
    assert rule_files.load(path) == SHIPPED.rules
    assert [entry.name for entry in tmp_path.iterdir()] == ["rules.json"]


def test_a_file_that_lies_is_refused(few_instances, tmp_path, cache):
    path = write(tmp_path / "rules.json", RIGHT, LIE)
    for _ in range(2):
        with pytest.raises(UserError, match="rule lie is refused: wrong for") as error:
            rule_files.load(path)
        assert "\n" not in str(error.value)
    assert len(contents(cache)) == 1  # The mark of what is right.


def test_what_was_verified_is_verified_again_only_if_its_record_is_broken(
    few_instances, tmp_path, cache, monkeypatch
):
    path = write(tmp_path / "rules.json", RIGHT)
    (rule,) = rule_files.load(path)
    assert "identity testing" in rule.verified_by and not rule.may_change_nonfinite
    (whole,) = contents(cache)
    for damaged in (b"", whole[:-1], whole.replace(b"identity", b"IDENTITY"), b"{}"):
        execute(cache, "UPDATE entries SET content = ?", damaged)
        assert rule_files.load(path) == (rule,)
        assert contents(cache) == [whole]
    monkeypatch.setattr(verify_module, "verify", lambda *_: pytest.fail("it is verified again"))
    assert rule_files.load(path) == (rule,)


def test_strict_leaves_out_what_may_change_nan_or_lose_digits():
    strict = rule_files.load(strict=True)
    assert strict == tuple(
        rule for rule in SHIPPED.rules if not (rule.may_change_nonfinite or rule.may_lose_digits)
    )
    names = {rule.name for rule in strict}
    assert {"transposed_twice", "linear_is_gemm", "batch_norm_into_conv"} <= names
    assert not names & {"mul_div_to_nothing", "common_factor", "batch_norm_is_linear"}


def test_a_file_is_not_believed_that_its_rules_keep_nan(few_instances, tmp_path):
    """x / y * y is NaN where y is 0; a rule that only the file knows, and one of the package's."""
    mark = {"may_change_nonfinite": False}
    cancelled = make("cancelled", "(Tanh (Mul (Div ?x ?y) ?y))", "(Tanh ?x)", **mark)
    own = {**BY_NAME["mul_div_to_nothing"].as_dict(), **mark}
    path = write(tmp_path / "rules.json", RIGHT, cancelled, own)
    marks = {rule.name: rule.may_change_nonfinite for rule in rule_files.load(path)}
    assert marks == {"right": False, "cancelled": True, "mul_div_to_nothing": True}
    assert [rule.name for rule in rule_files.load(path, strict=True)] == ["right"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "expected JSON"),
        ("[]", "a list 'rules'"),
        ('{"rules": [{"source": []}]}', "without a name"),
        ('{"rules": [{"name": "a", "source": ["(Relu ?x"], "target": ["?x"]}]}', "parenthesis"),
        ('{"rules": [{"name": "a", "because": 1}]}', "unknown field 'because'"),
        (json.dumps({"rules": [make("a", "(Neg ?x)", "?x", origin="me")]}), "origin 'generated'"),
        (json.dumps({"rules": [RIGHT, RIGHT]}), "two rules are called right"),
        ('{"rules": [], "made": 1}', "expected made as an object"),
        ('{"rules": [], "made": {"stages": {"order": 1}}}', "expected order as an object"),
        (None, "cannot read"),
        ("a link to itself", "Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_of_rules(text, reason, tmp_path):
    path = tmp_path / "rules.json"
    if text == "a link to itself":
        path.symlink_to(path.name)
    elif text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=reason) as error:
        rule_files.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
