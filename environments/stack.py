"""Settings that must be made before TensorFlow, TF-Agents and onnxruntime are first imported.

`environments` and `tfrl_systems` call `prepare` from their `__init__`. So each of their modules,
and each worker process that imports one, finds the settings made. This module imports nothing
heavy: `tfrl --help` stays instant, and a process without TensorFlow does not pay for it.
"""

from __future__ import annotations

import atexit
import gc
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TextIO

from environments.errors import UserError

# The first TensorFlow whose tf.keras is Keras 3, which TF-Agents cannot use.
_FIRST_KERAS_3 = (2, 16)

# Level 3 hides all of TensorFlow's messages except the fatal ones. At level 2 TensorFlow 2.15 still
# prints four lines about CUDA on every machine without a GPU. Errors raise exceptions anyway.
_TENSORFLOW_LOG_LEVEL = "3"

# Python searches for garbage among new objects whenever there are 700 more of them. TensorFlow
# makes many when it is imported and when it traces, nearly all to stay: the search takes a tenth of
# the import.
_NUM_NEW_OBJECTS = 50_000

# These packages warn about their own sources, which our users cannot change.
_NOISY_SOURCES = re.compile(
    r".*[/\\](tf_agents|tensorflow|tensorflow_probability|tf_keras|keras|gym|gast)[/\\]"
)
_NOISY_CATEGORIES = (SyntaxWarning, DeprecationWarning, PendingDeprecationWarning, FutureWarning)
# TensorFlow gives the first warning whenever a policy with a distribution in its specs is saved.
# NumPy gives the second one when TF-Agents checks integer specs.
_NOISY_MESSAGES = ("Encoding a StructuredValue with type", "invalid value encountered in cast")


class MissingTfAgentsError(UserError, ModuleNotFoundError):
    """Raised when TF-Agents is imported but not installed; the message says how to install it."""


class KerasError(UserError, ImportError):
    """Raised where TF-Agents' networks are needed and tf.keras is Keras 3 already."""


def prepare() -> None:
    """Make the settings that TensorFlow, TF-Agents and onnxruntime read when they are imported.

    It can be called any number of times. Later calls change nothing.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _TENSORFLOW_LOG_LEVEL)
    # From 1.29 on, onnxruntime tells its makers about each model it loads, unless this is set.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    _search_garbage_less_often()
    _end_without_a_search()
    _choose_keras(_installed_version("tensorflow"))
    _provide_distutils()
    _silence_gym()
    _silence_dependencies()
    # The remedy comes last, so Python asks it only if no other finder knows tf_agents.
    if not any(isinstance(finder, _TfAgentsRemedy) for finder in sys.meta_path):
        sys.meta_path.append(_TfAgentsRemedy())


def check_keras() -> None:
    """Check that tf.keras is what `prepare` chose, or is still to be chosen.

    TensorFlow chooses when tf.keras is first used. TF-Agents uses it when it is imported.

    Raises:
      KerasError: it was used before `prepare` was called.
    """
    keras = vars(sys.modules["tensorflow"]).get("keras") if "tensorflow" in sys.modules else None
    if keras is None:
        return
    # To ask it for an attribute would make it choose.
    facts = vars(keras)
    is_chosen = facts.get("_tfll_keras_version") == "keras_3"
    if is_chosen or str(facts.get("__version__", "")).startswith("3."):
        raise KerasError(
            "keras: expected Keras 2 as tf.keras, which TF-Agents needs, found Keras 3, chosen "
            "when tf_agents or tf.keras was used before tfrl_systems; import tfrl_systems first, "
            "or set TF_USE_LEGACY_KERAS=1"
        )


def _installed_version(distribution: str) -> tuple[int, int] | None:
    """Return (major, minor) of a distribution without importing it; None if not installed."""
    try:
        major, minor, *_ = importlib.metadata.version(distribution).split(".")
        return int(major), int(minor)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _search_garbage_less_often() -> None:
    """Let more objects be made before Python searches for garbage, unless it waits longer already.

    A threshold of 0 means that the user has turned the search off.
    """
    youngest, *older = gc.get_threshold()
    if 0 < youngest < _NUM_NEW_OBJECTS:
        gc.set_threshold(_NUM_NEW_OBJECTS, *older)


def _end_without_a_search() -> None:
    """Let a process end half a second sooner, without a search for garbage in all of TensorFlow.

    Other exit handlers still run.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _choose_keras(tensorflow_version: tuple[int, int] | None) -> None:
    """Make TensorFlow use Keras 2, the only version that TF-Agents works with.

    Before 2.16 TensorFlow brings Keras 2 itself. There the variable must be unset: without tf-keras
    it breaks the import of TensorFlow.
    """
    if tensorflow_version is None:
        return
    if tensorflow_version >= _FIRST_KERAS_3:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    else:
        os.environ.pop("TF_USE_LEGACY_KERAS", None)


def _provide_distutils() -> None:
    """Let TF-Agents import distutils, which setuptools provides from Python 3.12 on.

    setuptools installs its replacement when Python starts. A notebook that has just installed
    setuptools in a running Python does not have it yet.
    """
    if sys.version_info >= (3, 12) and "_distutils_hack" not in sys.modules:
        try:
            import _distutils_hack
        except ImportError:
            return
        _distutils_hack.add_shim()


def _silence_gym() -> None:
    """Clear the notices that gym prints when TF-Agents imports it."""
    try:
        from gym_notices import notices
    except ImportError:
        return
    notices.notices.clear()


def _silence_dependencies() -> None:
    """Hide the dependencies' warnings about their own sources; show all others as before.

    A warning filter does not work: gym puts its own filter in front when it is imported.
    """
    show = warnings.showwarning
    if getattr(show, "hides_dependencies", False):
        return

    def show_others(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        noisy = issubclass(category, _NOISY_CATEGORIES) or str(message).startswith(_NOISY_MESSAGES)
        if not (noisy and _NOISY_SOURCES.match(filename)):
            show(message, category, filename, lineno, file, line)

    show_others.hides_dependencies = True  # type: ignore[attr-defined]
    warnings.showwarning = show_others


class _TfAgentsRemedy(importlib.abc.MetaPathFinder):
    """Raises an error with the remedy in place of "No module named 'tf_agents'"."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tf_agents":
            return None
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise MissingTfAgentsError(
            f"TF-Agents is needed and is not installed for Python {python}; "
            "install it with: pip install --no-deps tf-agents",
            name=fullname,
        )
