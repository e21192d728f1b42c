"""The stack is prepared by importing either package, in a fresh process as a user has it."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
import types
import warnings

import pytest

from environments import stack
from environments.errors import UserError


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new process, with no variable of TensorFlow's or onnxruntime's set before."""
    theirs = ("TF_", "ORT_", "CI")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("package, level", [("environments", None), ("tfrl_systems", "0")])
def test_importing_a_package_brings_no_tensorflow_and_keeps_the_user_s_level(package, level):
    heavy = {"tensorflow", "tf_agents", "gym", "numpy", "sklearn", "llvmlite"}
    code = f"import os, sys, {package}; print(sorted({heavy} & set(sys.modules)))"
    chosen = {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    done = run_python(f"{code}; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])", **chosen)
    assert (done.stdout, done.stderr) == (f"[]\n{level or 3}\n", "")


# As where setuptools came after Python had started: nothing stands in for distutils.
NO_DISTUTILS_OF_SETUPTOOLS = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "istutils" not in type(f).__name__]
sys.modules.pop("_distutils_hack", None)
"""


@pytest.mark.parametrize(
    ("before", "is_compiled"),
    [
        pytest.param(NO_DISTUTILS_OF_SETUPTOOLS, True, marks=pytest.mark.ci),
        pytest.param("", False, id="just installed", marks=pytest.mark.slow),
    ],
)
def test_tf_agents_is_imported_in_silence_on_keras_2(before, is_compiled, tmp_path):
    """Right after the installation Python compiles every file: that is when its sources warn."""
    code = (
        f"{before}\n"
        "import tfrl_systems\n"
        "import tensorflow as tf\n"
        "from tf_agents.agents.ppo import ppo_clip_agent\n"
        "from tf_agents.environments import py_environment\n"
        "tf.constant(1)\n"
        "print(tf.keras.__internal__.__name__)\n"
    )
    anew = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    done = run_python(code, **({} if is_compiled else anew))
    assert (done.returncode, done.stderr) == (0, "")
    assert "api._v2.keras" in done.stdout


def test_onnxruntime_tells_its_makers_nothing(tmp_path):
    """When it is about to, it keeps a session's number in the directory of temporary files."""
    done = run_python("import environments, onnxruntime", TMPDIR=str(tmp_path))
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize(
    "version, before, after",
    [
        ("2.15.1", None, None),
        ("2.15.1", "1", None),
        ("2.16.0", None, "1"),
        ("2.20.0", "0", "1"),
        (None, None, None),
        (None, "1", "1"),
    ],
)
def test_keras_2_is_chosen_from_tensorflow_2_16_on(monkeypatch, version, before, after):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", before or "")
    if before is None:
        monkeypatch.delenv("TF_USE_LEGACY_KERAS")

    def version_of(distribution):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return version

    monkeypatch.setattr(importlib.metadata, "version", version_of)
    stack.prepare()
    assert os.environ.get("TF_USE_LEGACY_KERAS") == after


@pytest.mark.parametrize(
    ("facts", "is_right"),
    [
        (None, True),
        # What tf.keras is before and after TensorFlow has chosen.
        ({"_tfll_initialized": False}, True),
        ({"_tfll_initialized": True, "_tfll_keras_version": "tf_keras"}, True),
        ({"__version__": "2.20.1"}, True),
        ({"_tfll_initialized": True, "_tfll_keras_version": "keras_3"}, False),
        ({"__version__": "3.15.1"}, False),
    ],
)
def test_keras_that_was_chosen_before_us(facts, is_right, monkeypatch):
    tensorflow = types.ModuleType("tensorflow")
    if facts is not None:
        tensorflow.keras = types.SimpleNamespace(**facts)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    if is_right:
        stack.check_keras()
        return
    with pytest.raises(ImportError, match="import tfrl_systems first") as caught:
        stack.check_keras()
    assert isinstance(caught.value, UserError) and "\n" not in str(caught.value)


def test_missing_tf_agents_names_the_remedy():
    """What `pip install .` on Python 3.12 and later leads to: the import says what to do."""
    code = """
import environments
from environments.errors import UserError
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "tf_agents" else find(name, *rest)
try:
    from tf_agents.environments import py_environment
except UserError as error:
    print(isinstance(error, ModuleNotFoundError), error.name, error)
"""
    done = run_python(code)
    assert done.stdout.startswith("True tf_agents TF-Agents is needed"), done.stderr
    assert done.stdout.endswith("pip install --no-deps tf-agents\n")
    assert issubclass(stack.MissingTfAgentsError, UserError)


@pytest.mark.parametrize(
    "category, filename, is_shown",
    [
        (SyntaxWarning, "/x/site-packages/tf_agents/a.py", False),
        (DeprecationWarning, "/x/site-packages/gast/astn.py", False),
        (UserWarning, "/x/site-packages/tf_agents/a.py", True),
        (SyntaxWarning, "/home/me/my_tf_agents/a.py", True),
        (SyntaxWarning, "/home/me/a.py", True),
    ],
)
def test_only_what_dependencies_say_of_themselves_is_hidden(
    monkeypatch, category, filename, is_shown
):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda *words: shown.append(words))
    stack.prepare()
    handler, finders = warnings.showwarning, list(sys.meta_path)
    stack.prepare()
    assert warnings.showwarning is handler and sys.meta_path == finders, "twice is once"
    warnings.showwarning("words", category, filename, 1)
    assert bool(shown) is is_shown


@pytest.mark.parametrize(
    ("before", "after"), [((700, 10, 10), (50_000, 10, 10)), ((0, 9, 9), (0, 9, 9))]
)
def test_garbage_is_searched_less_often_unless_never(before, after):
    usual = gc.get_threshold()
    try:
        gc.set_threshold(*before)
        stack.prepare()
        assert gc.get_threshold() == after
    finally:
        gc.set_threshold(*usual)


def test_a_process_ends_without_a_search_for_garbage():
    """What was registered before runs after it."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))"
    done = run_python(f"{code}; import environments, tfrl_systems")
    assert (done.stdout, done.stderr) == ("True\n", "")
