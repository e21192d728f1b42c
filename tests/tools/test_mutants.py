"""Mutants are what they say, the tests that run them are found, and a suite is judged by them."""

from __future__ import annotations

import ast
import json
import pathlib
import random
import subprocess

import pytest

from environments.errors import UserError
from tools import mutants
from tools.mutation import measuring, trials
from tools.mutation.places import KINDS, Source, draw, relocate
from tools.mutation.runs import Run, sources

ROOT = pathlib.Path(__file__).parents[2]

EDITS = {
    "sign": [
        ("x = a + b", ["x = a - b"]),
        ("x = (a) - (b)  # c + d", ["x = (a) + (b)  # c + d"]),
        ("x = (\n    a  # - c\n    + b\n)", ["x = (\n    a  # - c\n    - b\n)"]),
        ("x += y", ["x -= y"]),
        ("x = a - -1", ["x = a + -1", "x = a - 1"]),
        ("x = 'é', a + b", ["x = 'é', a - b"]),
        ("x = 'a' + b + c", []),
        ("x = b + f'{a + b}'", []),
        ("x += [a]", []),
        ("x = a * b", []),
    ],
    "bound": [
        ("x = a < b", ["x = a <= b"]),
        ("x = a <= (b) > c", ["x = a < (b) > c", "x = a <= (b) >= c"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = a == 0", ["x = a == 1"]),
        ("x = a[1] + a[3]", ["x = a[2] + a[3]"]),
        ("x = a[:, 0:n]", ["x = a[:, 1:n]"]),
        ("x = range(2, n)", ["x = range(3, n)"]),
        ("x = f(0), a[True], 1", []),
    ],
    "copy": [
        ("x = (a + b).copy()", ["x = (a + b)"]),
        ("x = copy.copy(a)", ["x = (a)"]),
        ("x = copy.deepcopy(a)", ["x = (a)"]),
        ("x = list(y for y in a)", ["x = ((y for y in a))"]),
        ("x = dict(a)", ["x = (a)"]),
        ("x = np.array(a or b)", ["x = (a or b)"]),
        ("x = list(), list(*a), dict(a, b=c), np.array(a, b), copy.copy", []),
    ],
    "argument": [
        ("f(a, b, c)", ["f(b, a, c)"]),
        ("f((a or b), c=d)", []),
        ("f((a or b), c, d=e)", ["f((c), a or b, d=e)"]),
        ("f(a, *b)", []),
        ("f(a, a)", []),
        ("max(a, b)", []),
    ],
    "check": [
        ("if a:\n    raise E(\n        a\n    )\n", ["if a:\n    pass\n"]),
        ("if not (a or b) and c:\n    f()\n", ["if ((a or b)) and c:\n    f()\n"]),
        ("if a:\n    return\n", ["if False:\n    return\n"]),
        (
            "if a:\n    f()\nelif b:\n    continue\n",
            ["if a:\n    f()\nelif False:\n    continue\n"],
        ),
        ("if a:\n    f()\n    return\nx = not a\n", []),
        ("try:\n    f()\nexcept E:\n    if a:\n        raise\n", []),
        ("raise E", []),
    ],
}


def mutated(text: str, kind: str = "") -> list[str]:
    """Return a source with each of its mutants."""
    content = text.encode()
    places = Source("a.py", content).mutants()
    return [place.apply(content).decode() for place in places if kind in (place.kind, "")]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [(kind, *case) for kind, cases in EDITS.items() for case in cases],
)
def test_each_kind(kind, text, expected):
    assert sorted(mutated(text, kind)) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: T[0] = b) -> T[1]:\n    '''- a + b.'''\n    x: T[2] = a\n",
        "if TYPE_CHECKING:\n    x = a + b\n",
        "x = f'{a + b:{c - d}} {f(a, b)}'\n",
    ],
)
def test_types_and_texts_are_left_alone(text):
    assert mutated(text) == []


def test_a_mutant_says_what_and_where():
    text = "def f(a=b[0]):\n    for c in d:\n        return (\n            -a\n        )\n"
    bound, sign = Source("p/a.py", text.encode()).mutants()
    assert str(bound) == "p/a.py:1 bound: 'b[0]' -> 'b[1]'" and bound.runs_at_import
    assert str(sign) == "p/a.py:4 sign: '-a' -> 'a'" and not sign.runs_at_import
    assert (sign.column, sign.lines, sign.statement) == (12, (4, 4), (3, 5))


@pytest.fixture(scope="module")
def real():
    """Every third file of the packages, and all of their mutants."""
    contents = dict(sorted(sources(ROOT).items())[::3])
    return contents, [
        place for path in contents for place in Source(path, contents[path]).mutants()
    ]


def test_mutants_of_the_real_packages_are_python(real):
    contents, places = real
    for mutant in random.Random(0).sample(places, 200):
        ast.parse(mutant.apply(contents[mutant.path]))


def test_a_seed_decides_the_mutants(real):
    _, places = real
    drawn = draw(places, 22, seed=1)
    assert drawn == draw(reversed(places), 22, seed=1) != draw(places, 22, seed=2)
    assert [sum(mutant.kind == kind for mutant in drawn) for kind in KINDS] == [5, 5, 4, 4, 4]
    assert {mutant.path.partition("/")[0] for mutant in drawn} == {"environments", "tfrl_systems"}


def test_a_place_in_an_old_version():
    text = b"a\nx = a + b\nc\nd\nx = a + b\nc\n"
    first, second = Source("a.py", text).mutants()
    assert relocate(second, text, b"# \xc3\xa9\n" + text).apply(b"# \xc3\xa9\n" + text) == (
        b"# \xc3\xa9\n" + second.apply(text)
    )
    assert relocate(first, text, text.replace(b"a\nx", b"b\nx")) is None
    assert relocate(first, text, text + text) is None


CALC = "environments/calc/calc.py"
MAIN = "environments/calc/main.py"
TESTS = "tests/environments/calc/test_calc.py"
LESS, EQUAL, ALL = f"{TESTS}::test_less", f"{TESTS}::test_equal", "tests/test_all.py::test"
FILES = {
    CALC: (
        "LIMIT = [0, 1][0]\n\n\ndef less(a, b):\n    return a - b\n\n\ndef far(a):\n    return -a\n"
    ),
    MAIN: 'def f(a, b):\n    return a + b\n\n\nif __name__ == "__main__":\n    f(1, 2)\n',
    TESTS: (
        "import signal, subprocess, sys\n\n\n"
        "def test_less():\n    import_in_child('less; assert less(5, 3) == 2')\n\n\n"
        "def test_equal():\n    import_in_child('less; assert less(0, 0) == 0')\n\n\n"
        "def import_in_child(text):\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "    words = [sys.executable, '-c', 'from environments.calc.calc import ' + text]\n"
        "    subprocess.run(words, check=True)\n"
    ),
    "tests/test_all.py": "def test():\n    pass\n",
    "environments/__init__.py": "",
    "tfrl_systems/__init__.py": "",
}


def write_checkout(root: pathlib.Path, **files: str) -> pathlib.Path:
    """Write a small checkout, and beside it what `measure` would write."""
    coverage = pytest.importorskip(
        "coverage", reason="coverage is not installed; pip install coverage"
    )
    for name, text in {**FILES, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", root], check=True)
    output = root.with_name("output")
    output.mkdir()
    data = coverage.CoverageData(str(output / "coverage"))
    contexts = {"": [1, 4, 8], f"{LESS}|run": [5], f"{EQUAL}|run": [5], f"{ALL} (call)": [5]}
    for context, lines in {**contexts, "lent data|call": [9]}.items():
        data.set_context(context)
        data.add_lines({str(root / CALC): lines})
    data.write()
    seconds = {LESS: 0.1, EQUAL: 0.1, ALL: 0.1}
    record = {"checkout": str(root), "sources": measuring._digests(root), "seconds": seconds}
    # `EQUAL` asks for the data itself; a fixture that `LESS` uses asks for more, made of the data.
    record["borrowers"] = {"data": [EQUAL, "lent more"], "more": ["fixture tests/env data"]}
    record["uses"] = {LESS: ["data"], ALL: ["data"]}
    (output / "measured.json").write_text(json.dumps(record))
    return root


@pytest.fixture
def checkout(tmp_path):
    return write_checkout(tmp_path / "checkout")


def mutants_of(checkout: pathlib.Path, path: str):
    return Source(path, (checkout / path).read_bytes()).mutants()


def test_the_tests_that_run_a_line(checkout):
    measured = measuring.Measured(checkout.with_name("output"), checkout)
    bound, sign, shared = mutants_of(checkout, CALC)
    assert measured.tests_of(sign) == [EQUAL, LESS, ALL]
    assert measured.tests_of(bound) == measured.tests_of(shared) == [EQUAL, LESS]
    # A program of its own may have been killed, and the test that started it is not known.
    assert measured.tests_of(mutants_of(checkout, MAIN)[0]) == [EQUAL, LESS]


def test_a_changed_source_has_to_be_measured_again(checkout):
    (checkout / CALC).write_text("x = 1\n")
    with pytest.raises(UserError, match="calc.py: expected what was measured, found a change"):
        measuring.Measured(checkout.with_name("output"), checkout)


@pytest.fixture
def suite(checkout):
    measured = measuring.Measured(checkout.with_name("output"), checkout)
    (checkout.with_name("scratch")).mkdir()
    return trials.Suite(checkout, measured, checkout.with_name("scratch"), limit_s=1.0)


@pytest.mark.parametrize(
    ("planted", "plain", "verdict", "by"),
    [
        (Run(0, {}, [], []), None, "survived", None),
        (Run(2, {}, [LESS], []), Run(0, {}, [], []), "caught", LESS),
        (Run(None, {}, [], [LESS]), Run(0, {}, [], []), "caught", LESS),
        (Run(2, {}, [TESTS], []), Run(0, {}, [], []), "caught", TESTS),
        (Run(3, {}, [], [], "crash"), Run(0, {}, [], []), "caught", "crash"),
        (Run(2, {}, [LESS, EQUAL], []), Run(1, {}, [LESS], []), "caught", EQUAL),
        (Run(3, {}, [], []), Run(3, {}, [], [], "crash"), "not judged", "crash"),
        (Run(2, {}, [LESS, EQUAL, ALL], []), Run(1, {}, [LESS, EQUAL, ALL], []), "not run", None),
    ],
)
def test_what_catches_a_mutant(suite, monkeypatch, planted, plain, verdict, by):
    mutant = mutants_of(suite._copy, CALC)[1]
    source = (suite._copy / CALC).read_bytes()

    def run_pytest(root, scratch, words, environment, limit_s):
        is_planted = (root / CALC).read_bytes() == mutant.apply(source)
        assert is_planted or (root / CALC).read_bytes() == source
        assert is_planted == ("-x" in words)
        return planted if is_planted else plain

    monkeypatch.setattr(trials, "run_pytest", run_pytest)
    record = suite.judge(mutant)
    assert (record["verdict"], record.get("by")) == (verdict, by)
    assert record.get("timed_out", False) == (planted.status is None)
    assert (suite._copy / CALC).read_bytes() == source


def test_a_test_that_fails_anyway_is_left_out(suite, monkeypatch):
    lists = []

    def run_pytest(root, scratch, words, environment, limit_s):
        lists.append((scratch / "tests").read_text().split())
        failed = [LESS] if LESS in lists[-1] else []
        return Run(bool(failed), {}, failed, [])

    monkeypatch.setattr(trials, "run_pytest", run_pytest)
    sign = mutants_of(suite._copy, CALC)[1]
    assert suite.judge(sign)["verdict"] == "survived"
    assert lists == [[EQUAL, ALL, LESS], [LESS], [EQUAL, ALL]]
    assert suite.judge(sign)["verdict"] == "survived" and lists[3:] == [[EQUAL, ALL]]


def test_a_test_that_is_no_more_is_left_out(suite, monkeypatch):
    def run_pytest(root, scratch, words, environment, limit_s):
        if LESS not in (scratch / "tests").read_text():
            return Run(0, {}, [], [])
        log = f"ERROR: not found: {root}/{LESS}\n(no match)" if "--collect-only" in words else ""
        return Run(5, {}, [], [], log)

    monkeypatch.setattr(trials, "run_pytest", run_pytest)
    sign = mutants_of(suite._copy, CALC)[1]
    assert suite.judge(sign)["num_tests"] == 2


def test_a_verdict_is_kept(checkout, tmp_path):
    mutant = mutants_of(checkout, CALC)[0]
    path = tmp_path / "mutants.jsonl"
    first = mutants.Verdicts(path, 0).of(mutant, "", lambda _: {"verdict": "not run"})
    again = mutants.Verdicts(path, 0).of(mutant, "", lambda _: pytest.fail("run again"))
    assert first == again and mutants.describe(again) == "no test runs it"
    for seed, suite in ((1, ""), (0, "old")):
        record = mutants.Verdicts(path, seed).of(mutant, suite, lambda _: {"verdict": "survived"})
        assert record["verdict"] == "survived"


def test_the_command_line(checkout, capsys):
    words = ("measure", "-o", "out", "--", "-k", "stack")
    assert mutants.parse_arguments(words).pytest == ["-k", "stack"]
    plant = ["plant", "--checkout", str(checkout), "-o", str(checkout)]
    assert mutants.main(plant) == 1
    assert "expected data of `measure`" in capsys.readouterr().err
    assert mutants.main([*plant, "--against", str(checkout)]) == 1
    assert "found only one of them" in capsys.readouterr().err


SHARING = {
    "tests/conftest.py": (
        "import pytest\nfrom tests.lending import Lender\n"
        "from environments.calc.calc import far\n\n\n"
        "@pytest.fixture(scope='session')\ndef minus():\n    return far(1)\n\n\n"
        "@pytest.fixture(scope='session')\ndef lend():\n    return Lender()\n"
    ),
    "tests/lending.py": (
        "class Lender:\n    names = set()\n\n"
        "    def __call__(self, name, make):\n"
        "        name in self.names or self.names.add(name) or make(name)\n"
    ),
    "tests/test_all.py": (
        "from environments.calc.main import f\n\n\n"
        "def test_1(lend):\n    lend('sum', lambda _: f(1, 2))\n\n\n"
        "def test_2(lend):\n    lend('sum', lambda _: f(1, 2))\n\n\n"
        "def test_3(minus):\n    assert minus\n\n\n"
        "def test_4(minus):\n    assert minus\n"
    ),
}


@pytest.mark.slow
def test_measuring(tmp_path):
    """Lines that a child runs are its test's, and what is shared is of all that share it."""
    pytest.importorskip("pytest_cov")
    root = write_checkout(tmp_path / "checkout", **SHARING)
    assert mutants.main(["measure", "--checkout", str(root), "-o", str(tmp_path / "output")]) == 0
    measured = measuring.Measured(tmp_path / "output", root)
    (at_import, in_child, in_fixture), (lent, _) = mutants_of(root, CALC), mutants_of(root, MAIN)
    tests = [f"tests/test_all.py::test_{number}" for number in (1, 2, 3, 4)]
    assert measured.tests_of(at_import) == measured.tests_of(in_child) == [EQUAL, LESS]
    assert measured.tests_of(in_fixture) == tests[2:]
    # The file is a program, too: the tests of its directory may have run it.
    assert measured.tests_of(lent) == [EQUAL, LESS, *tests[:2]]


@pytest.mark.slow
def test_from_end_to_end(checkout, tmp_path, capsys):
    """Each run of pytest takes seconds."""
    old_test = FILES[TESTS].replace("less; assert less(0, 0) == 0", "far; assert far(1) == -1")
    old_files = {TESTS: old_test, MAIN: "x = 1\n"}
    old = write_checkout(tmp_path / "old" / "checkout", **old_files)
    words = ["plant", "--count", "15", "--checkout", str(checkout)]
    words += ["-o", str(checkout.with_name("output"))]
    assert mutants.main(words) == 0
    out = capsys.readouterr().out
    assert f":5 sign: 'a - b' -> 'a + b': caught by {LESS} in " in out
    assert ":1 bound: '[0, 1][0]' -> '[0, 1][1]': survived 2 tests in " in out
    assert "| sign | 1 | 2 | 0 | 0 |" in out
    assert out.endswith("\n1 caught, 4 survived, 0 not run, 0 not judged\n")
    words += ["--against", str(old), "--against-measured", str(old.with_name("output")), "--json"]
    assert mutants.main(words) == 1
    listings = json.loads(capsys.readouterr().out)
    verdicts = {
        record["mutant"].partition(" ")[0]: record["verdict"] for record in listings["against"]
    }
    assert verdicts == {
        f"{MAIN}:2": "not there",
        f"{MAIN}:6": "not there",
        f"{CALC}:1": "survived",
        f"{CALC}:9": "caught",
    }
