"""A user's function in a process of its own: what it does there, and what it is."""

from __future__ import annotations

import copy
import importlib
import subprocess
import sys

import numpy as np
import pytest

from environments.errors import UserError
from environments.learn_to_optimize.functions import make_objective
from environments.learn_to_optimize.isolated import isolated_objective
from tests.checkout import environment

ZERO = np.zeros((1, 2))


def test_it_gives_what_the_function_gives_here(write):
    name = write("def cost(p):\n    return p[:, 0] + 10 * p[:, 1]\ncost.bounds = [(0, 4), (1, 3)]")
    rows = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    here, there = make_objective(f"{name}:cost"), isolated_objective(f"{name}:cost")
    assert np.array_equal(there(rows), here(rows))
    assert there.identity == here.identity and there.describe(ZERO[0]) == here.describe(ZERO[0])
    # A copy in another process, as workers get it, gives the same and counts for itself.
    sent = copy.deepcopy(there)
    assert np.array_equal(sent(rows), here(rows))
    assert (there.evaluations.count, sent.evaluations.count) == (5, 5)


def test_what_it_prints_is_no_output_of_ours(write, capfd):
    name = write(
        "import os\nprint('hello')\ndef cost(p):\n    os.system('echo there')\n    return p[:, 0]"
    )
    isolated_objective(f"{name}:cost")(ZERO)
    said = capfd.readouterr()
    assert said.out == "" and said.err.split() == ["hello", "there"]


ENDS = {
    "os._exit(0)": "its process ended with status 0",
    "os.kill(os.getpid(), 9)": "its process was ended by SIGKILL",
    "os.abort()": "its process was ended by SIGABRT",
    "sys.exit(3)": "SystemExit: 3",
    "raise KeyboardInterrupt": "its process was ended by SIGINT",
    "sys.setrecursionlimit(10); [f(p) for f in [cost]]": "RecursionError",
}


def test_a_function_or_module_that_ends_its_process_is_one_line(write):
    """The next call has another process."""
    ends = [
        f"    if (p[:, 0] == {number}).any():\n        {end}" for number, end in enumerate(ENDS, 1)
    ]
    text = "\n".join(["import os, sys", "def cost(p):", *ends, "    return p[:, 0]"])
    name = write(f"{text}\ncost.bounds = (-10, 10)")
    objective = isolated_objective(f"{name}:cost")
    for number, said in enumerate(ENDS.values(), 1):
        with pytest.raises(UserError, match=said) as caught:
            objective(np.array([[number / 10, 1], [0, 1]]))
        message = str(caught.value)
        assert f"x = ({number}), c = (10)" in message and "\n" not in message
        assert objective(ZERO).tolist() == [0]
    for text in ("import os; os._exit(0)", "1 / 0"):
        with pytest.raises(UserError, match="expected to import") as caught:
            isolated_objective(f"{write(text)}:cost")
        assert "\n" not in str(caught.value)


def test_every_point_is_counted_also_those_that_find_a_fault(write, tmp_path):
    count = tmp_path / "count"
    name = write(
        f"""
        def cost(p):
            with open({str(count)!r}, 'a') as file:
                print(len(p), file=file)
            assert (p[:, 0] < 0.5).all()
            return p[:, 0]
        """
    )
    objective = isolated_objective(f"{name}:cost")
    objective(np.zeros((3, 2)))
    with pytest.raises(UserError, match="AssertionError"):
        objective(np.linspace(0, 1, 8)[:, np.newaxis].repeat(2, axis=1))
    assert objective.evaluations.count == sum(map(int, count.read_text().split())) > 11


def test_an_edited_module_is_read_anew_by_the_next_run_and_refused_in_this_one(write, tmp_path):
    name = write("def cost(p):\n    return p[:, 0]")
    first = isolated_objective(f"{name}:cost")
    assert first(ZERO + 0.5).tolist() == [0.5]
    sent = copy.deepcopy(first)
    (tmp_path / f"{name}.py").write_text("def cost(p):\n    return 7 + p[:, 0]")
    assert isolated_objective(f"{name}:cost")(ZERO).tolist() == [7]
    assert first(ZERO).tolist() == [0], "its process began before"
    with pytest.raises(UserError, match="its source has changed since; undo the change"):
        sent(ZERO)


def test_here_an_edited_module_is_refused_until_it_is_reloaded(write, tmp_path):
    """This process keeps what it imported, whatever the file says now."""
    name = write("def cost(p):\n    return p[:, 0]")
    make_objective(f"{name}:cost")
    (tmp_path / f"{name}.py").write_text("def cost(p):\n    return 1 + p[:, 0]  # changed")
    with pytest.raises(UserError, match="it was edited since; reload it"):
        make_objective(f"{name}:cost")
    importlib.reload(sys.modules[name])
    assert make_objective(f"{name}:cost")(ZERO).tolist() == [1]


SCRIPT = """
import threading
from environments.learn_to_optimize.isolated import isolated_objective
import numpy as np

def helper(p):
    return 3 * p[:, 0]

def cost(p):
    return [helper(row[np.newaxis])[0] + 1 for row in p]

held = threading.Lock()
def holding(p):
    with held:
        return p[:, 0]

for name in ("cost", "holding", "nothing"):
    try:
        print(isolated_objective(f"__main__:{name}")(np.array([[0.5, 0.0]])))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_function_of_a_script_goes_to_its_process(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    function, held, missing = done.stdout.splitlines()
    assert function == "[2.5]"
    assert "expected a function that can be sent to another process, found TypeError" in held
    assert "expected nothing in this notebook or script, found none; run the cell" in missing
