"""The house stands as drawn: who may import whom, and how large things may grow.

The second half proves on small made-up sources that each rule catches what it is there for.
"""

from __future__ import annotations

import functools

import pytest

from tests import house_rules, naming
from tests.checkout import PACKAGES, ROOT
from tests.house_rules import Source

CHECKED = (*PACKAGES, "tests", "tools")


def read_sources(*folders: str) -> list[Source]:
    return [source for folder in folders for source in _read_sources(folder)]


@functools.cache
def _read_sources(folder: str) -> tuple[Source, ...]:
    """Each file is read and parsed once for all rules."""
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / folder).rglob("*.py"))
    )


RULES = (*house_rules.RULES, naming.names_are_nouns)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule):
    violations = [str(violation) for source in read_sources(*CHECKED) for violation in rule(source)]
    assert not violations, "\n" + "\n".join(violations)


def test_no_module_imports_itself_through_others():
    cycle = house_rules.import_cycle(read_sources(*PACKAGES))
    assert not cycle, "import cycle: " + " -> ".join(cycle)


def test_the_files_are_found():
    paths = {source.path for source in read_sources(*CHECKED)}
    assert {"environments/stack.py", "tfrl_systems/__init__.py", "tests/test_imports.py"} <= paths


def function_of(num_lines: int, docstring: str = "") -> str:
    return f"def f():\n{docstring}" + "    x = 1\n" * (num_lines - 1)


IN_A_FUNCTION = "def f():\n    importlib.import_module('tfrl_systems.cli')"
GRAPHS = "environments/tensor_graphs"
VIOLATIONS = [
    ("environments/contexts.py", "import tfrl_systems", "never imports tfrl_systems"),
    ("environments/a.py", IN_A_FUNCTION, "2: environments never imports tfrl_systems"),
    (
        "environments/inlining/corpus/a.py",
        "from environments.tensor_graphs import graph",
        "never import",
    ),
    (
        "environments/inlining/environment.py",
        "from ..learn_to_optimize import samplers",
        "never import each",
    ),
    ("environments/inlining/__init__.py", "from .. import tensor_graphs", "never import each"),
    ("environments/a.py", "import tensorflow as tf", "imports tensorflow"),
    ("environments/a.py", "def f():\n    from tf_agents.agents import ppo", "2: environments"),
    ("environments/a.py", "from tf_agents.environments import utils", "py_environment"),
    ("tfrl_systems/networks/heads.py", "from ..agents import ppo", "never imports agents"),
    ("tfrl_systems/agents/ppo.py", "import tfrl_systems.training.loop", "never imports training"),
    ("tfrl_systems/__init__.py", "from tfrl_systems import cli", "tfrl_systems itself never"),
    ("tfrl_systems/helpers/a.py", "", "has no entry in ARROWS"),
    (
        f"{GRAPHS}/graph/drawing.py",
        "from environments.tensor_graphs.operators import table",
        "graph never imports operators",
    ),
    (
        f"{GRAPHS}/rules/language/terms.py",
        "from environments.tensor_graphs.rules import files",
        "rules.language never imports rules.files",
    ),
    (f"{GRAPHS}/helpers/a.py", "", "has no entry in SYSTEM_ARROWS"),
    ("tfrl_systems/drivers/pipes/pool.py", "import environments", "only systems, experiments"),
    ("tools/a.py", "from tfrl_systems import cli", "only cli imports cli"),
    ("notebooks/a.ipynb", "from tfrl_systems.cli.main import main", "only cli imports cli"),
    ("environments/a.py", "for one in modules:\n    pass", "1: a name is a noun"),
    ("tests/test_a.py", "def same(left, other):\n    pass", "1: a name is a noun"),
    ("environments/a.py", "x = 1\n" * 400, "this one has 400"),
    ("environments/a.py", function_of(50), "1: a function has at most"),
    ("environments/a.py", "class A:\n  async def f(self):\n" + "    x = 1\n" * 49, "f has 50"),
    ("tests/test_a.py", "\nprint('x')", "2: no print"),
    ("tools/a.py", "subprocess.run('ls', shell=True)", "no shell=True"),
    ("tools/a.py", "import os\nos.system('ls')", "2: no shell"),
    ("environments/a.py", "numpy.load(path, allow_pickle=True)", "no allow_pickle=True"),
    ("tfrl_systems/policies/a.py", "from joblib import dump", "no pickle"),
    ("tfrl_systems/drivers/pipes/pool.py", "import cloudpickle", "no pickle"),
]

PERMITTED = [
    ("environments/inlining/environment.py", "from tf_agents.environments import py_environment"),
    ("environments/testing.py", "from tf_agents.environments import utils"),
    ("environments/inlining/environment.py", "from environments.inlining import corpus"),
    ("environments/__init__.py", "from environments.inlining.environment import X"),
    (
        f"{GRAPHS}/rules/files.py",
        "from environments.tensor_graphs.rules.verification import verify",
    ),
    ("tfrl_systems/cli/train.py", "import environments\nfrom tfrl_systems.training import online"),
    ("tfrl_systems/agents/ppo.py", "from tfrl_systems.agents import reinforce"),
    ("tfrl_systems/agents/ppo.py", "from environments.errors import UserError"),
    ("tests/test_a.py", "import environments, tfrl_systems, tensorflow"),
    ("tfrl_systems/drivers/pipes/messages.py", "import cloudpickle, pickle"),
    ("tools/a.py", "from tfrl_systems import experiments\nprint('x')"),
    ("tests/tfrl_systems/cli/test_a.py", "from tfrl_systems.cli import main"),
    ("environments/a.py", "x = 1\n" * 399),
    ("environments/a.py", function_of(49, docstring='    """One.\n\n    Two.\n    """\n')),
    ("environments/a.py", "numpy.load(path, allow_pickle=False)\ntable.print('x')"),
]


@pytest.mark.parametrize("path, text, message", VIOLATIONS)
def test_violation_is_caught_and_named(path, text, message):
    source = Source(path, text)
    (broken,) = (str(violation) for rule in RULES for violation in rule(source))
    assert broken.startswith(path + ":") and message in broken


@pytest.mark.parametrize("path, text", PERMITTED)
def test_what_is_permitted_passes(path, text):
    source = Source(path, text)
    assert [violation for rule in RULES for violation in rule(source)] == []


@pytest.mark.parametrize(
    "texts, expected",
    [
        ({"a": "from p import b", "b": "import p.c", "c": "x = 1"}, []),
        (
            {"a": "from p import b", "b": "import p.c", "c": "from . import a"},
            ["p.a", "p.b", "p.c"],
        ),
        ({"a": "from p.b import f", "b": "def f():\n    import p.a"}, ["p.a", "p.b"]),
        ({"__init__": "from p.a import f", "a": "import p"}, ["p", "p.a"]),
        ({"__init__": "from p import a", "a": "from p import b", "b": "import os"}, []),
    ],
)
def test_import_cycles_are_found(texts, expected):
    sources = [Source(f"p/{name}.py", text) for name, text in texts.items()]
    assert house_rules.import_cycle(sources) == [*expected, *expected[:1]]
