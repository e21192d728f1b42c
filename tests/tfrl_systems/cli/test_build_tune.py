"""`tfrl build --tune`: the best of several margins stays, and no image is larger than plain."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.tfrl_systems.cli.small_project import objects, run
from tests.tfrl_systems.systems.inlining.constant_policy import write_constant_policy
from tfrl_systems.systems.inlining.policies import load_policy

# LLVM inlines each call, and each copy is larger than a call.
CLEAR = """\
struct Shape { volatile int a, b, c; };
static void clear(Shape* shape) { shape->a = 12345678; shape->b = 23456789; shape->c = 34567890; }
int draw(Shape*);
int show(Shape* shape) {
  clear(shape); draw(shape); clear(shape); draw(shape); clear(shape); draw(shape); clear(shape);
  return draw(shape);
}
"""
# LLVM inlines the call, and the function is gone.
TWICE = "static int twice(int x) { return 2 * x; }\nint measure(int n) { return twice(n) + 1; }\n"
MAKE = """\
all: libclear.so $(MORE)
\techo built >>log
lib%.so: %.o
\t$(CXX) -shared $< -o $@
%.o: %.cpp
\t$(CXX) -Oz -fPIC -c $< -o $@
clean:
\trm -f clear.o twice.o libclear.so libtwice.so
.SECONDARY:
"""
# Below this margin the policies here inline nothing, and from there on what LLVM inlines.
TURN = 1.25


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Sources, and a library of somebody else's, in the current directory."""
    directory = tmp_path / "tree"
    directory.mkdir()
    for name, text in (("clear.cpp", CLEAR), ("twice.cpp", TWICE), ("Makefile", MAKE)):
        (directory / name).write_text(text)
    (directory / "their.o").write_bytes(b"\x7fELF, or so it says")
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """Policies that would inline nothing: by its own margin `cautious` does as LLVM does."""
    directory = tmp_path_factory.mktemp("policies")
    margins = {"cautious": 1.5, "bold": 0.5}
    return {
        name: write_constant_policy(directory / name, -TURN, margin)
        for name, margin in margins.items()
    }


def plain_objects(tree: pathlib.Path, make: tuple[str, ...]) -> dict[str, bytes]:
    run(*make, cwd=tree)
    built = objects(tree)
    run("make", "clean", cwd=tree)
    (tree / "log").unlink()
    return built


def size_of(entry: dict) -> int:
    return entry["text_bytes"] + entry["unwind_bytes"] + entry["rodata_bytes"]


@pytest.mark.ci
def test_the_best_margin_stays_and_later_builds_know_it(tfrl, one_clang, tree, policies):
    make = ("make", f"CXX={one_clang}")
    plain = plain_objects(tree, make)
    build = ("build", "--policy", policies["cautious"])
    report = tfrl(*build, "--tune", "--json", "--", *make).json
    assert (report["status"], report["steered"], report["tuning"]["reason"]) == (0, 1, "")
    tried = {entry["margin"]: entry for entry in report["tuning"]["tried"]}
    assert list(tried) == [1.5, 1.0, 2.5, 4.0, None]
    assert [margin for margin, entry in tried.items() if entry["is_best"]] == [1.0]
    assert size_of(tried[1.0]) < size_of(tried[None]) == size_of(tried[1.5])
    assert size_of(report["images"][0]) == size_of(tried[1.0])
    assert (tree / "log").read_text() == 6 * "built\n"
    assert (tree / "their.o").read_bytes().startswith(b"\x7fELF, or")
    assert not list(tree.glob(".tfrl*"))

    written = json.loads((tree / "tfrl.margins").read_text())
    assert report["tuning"]["file"] == str(tree / "tfrl.margins")
    assert (written["version"], written["margin"]) == (1, 1.0)
    built = objects(tree)
    assert built["clear.o"] != plain["clear.o"]
    run("make", "clean", cwd=tree)
    ran = tfrl(*build, "--", *make)
    assert f"{tree}/tfrl.margins: the margin is 1 in place of 1.5 (own)" in ran.err
    assert objects(tree) == built

    ran = tfrl("build", "--policy", "never", "--", *make)
    assert ran.status == 0 and "tfrl.margins is of another policy and is ignored" in ran.err
    (tree / "tfrl.margins").write_text('{"version": 1')
    ran = tfrl(*build, "--", *make)
    assert ran.status == 1 and f"{tree}/tfrl.margins: expected what tfrl build --tune" in ran.err


@pytest.mark.ci
def test_a_tree_in_which_nothing_is_won_stays_plain(tfrl, one_clang, tree, policies):
    """The policy's own margin makes one image smaller, and the other larger."""
    make = ("make", f"CXX={one_clang}", "MORE=libtwice.so")
    plain = plain_objects(tree, make)
    build = ("build", "--policy", policies["bold"])
    ran = tfrl(*build, "--tune", "--", *make)
    assert ran.status == 0
    rows = [line.split() for line in ran.err.splitlines()]
    assert [row[-2:] for row in rows if row[:2] == ["0.5", "(own)"]] == [["larger:", "libtwice.so"]]
    assert [row[-2:] for row in rows if row[:1] == ["plain"]] == [["+0.00%", "best"]]
    assert objects(tree) == plain
    assert json.loads((tree / "tfrl.margins").read_text())["margin"] is None

    run("make", "clean", cwd=tree)
    ran = tfrl(*build, "--", *make)
    assert "tfrl.margins: plain LLVM decides" in ran.err and "none: plain LLVM decides" in ran.err
    assert objects(tree) == plain


@pytest.mark.ci
def test_a_build_that_fails_loses_nothing(tfrl, one_clang, tree, policies):
    """The third of them does, once it has compiled; the second was with the margin 1."""
    build = ("build", "--policy", policies["cautious"], "--tune", "--json", "--", "sh", "-c")
    make = f"make CXX={one_clang}"
    third = round(2.5 * 2**24)
    ran = tfrl(*build, f'{make} && test "$TFRL_INLINING_MARGIN" != {third} || exit 9')
    assert ran.status == ran.json["status"] == 9
    reason = (
        "the command ended with status 9 under the margin 2.5; the tree is as the margin 1 made"
    )
    assert reason in ran.json["tuning"]["reason"] and f"--tune: {reason}" in ran.err
    assert [entry["margin"] for entry in ran.json["tuning"]["tried"]] == [1.5, 1.0]
    assert not (tree / "tfrl.margins").exists() and not list(tree.glob(".tfrl*"))
    assert run("make", f"CXX={one_clang}", cwd=tree).count(one_clang) == 0  # all is there
    failed = objects(tree)
    run("make", "clean", cwd=tree)

    # A stamp says that all was built, so the next build compiles nothing.
    ran = tfrl(*build, f"test -e stamp || {make} && touch stamp")
    assert "expected the command to write clear.o again" in ran.result["tuning"]["reason"]
    assert (tree / "libclear.so").is_file()
    assert objects(tree)["clear.o"] != failed["clear.o"]  # the own margin's, so LLVM's


@pytest.mark.parametrize(
    ("policy", "status", "expected"),
    [
        ("always", 2, "expected a policy that bc_max learned, found always, which has no margin"),
        ("cautious", 0, "no compile was steered"),
    ],
)
def test_what_cannot_be_tuned(tfrl, one_clang, tree, policies, policy, status, expected):
    name = policies.get(policy, policy)
    ran = tfrl("build", "--policy", name, "--tune", "--", "touch", "ran")
    assert ran.status == status and expected in ran.err
    assert (tree / "ran").exists() == (status == 0)


def test_clangs_that_do_not_get_the_margin_are_told_of(tfrl, one_clang, tree, policies):
    """As in a build that gives its compilers some variables only."""
    ours = " ".join(
        f'{name}="${name}"'
        for name in ("CCC_OVERRIDE_OPTIONS", "TFRL_INLINING_LOG", "TFRL_INLINING_CONFIG")
    )
    shell = f'env -i PATH="$PATH" {ours} make CXX={one_clang}'
    build = ("build", "--policy", policies["cautious"])
    ran = tfrl(*build, "--tune", "--json", "--", "sh", "-c", shell)
    message = "clangs did not get TFRL_INLINING_MARGIN, so 1 is not their margin"
    assert ran.status == 0 and message in ran.json["tuning"]["reason"]
    assert (tree / "log").read_text() == 2 * "built\n"
    fields = {"version": 1, "policy": load_policy(str(policies["cautious"])).fingerprint}
    (tree / "tfrl.margins").write_text(json.dumps(fields | {"margin": 1}))
    run("make", "clean", cwd=tree)
    assert message in tfrl(*build, "--", "sh", "-c", shell).err
