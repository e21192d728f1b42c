"""What must be set before TensorFlow and TF-Agents are first imported.

Both packages call `prepare` from their `__init__`, so every module of theirs, and every worker
process that imports one, finds the stack ready. Nothing heavy is imported here: `tfrl --help`
stays instant, and a process that needs no TensorFlow never pays for it.
"""

from __future__ import annotations

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

# All of TensorFlow's own messages but the fatal ones: at level 2 TensorFlow 2.15 still prints four
# lines about CUDA on every machine without a GPU. What goes wrong is raised as an exception anyway.
_TENSORFLOW_LOG_LEVEL = "3"

# Warnings from these packages about their own sources, which a user of ours can do nothing about.
_NOISY_SOURCES = re.compile(
    r".*[/\\](tf_agents|tensorflow|tensorflow_probability|tf_keras|keras|gym|gast)[/\\]"
)
_NOISY_CATEGORIES = (SyntaxWarning, DeprecationWarning, PendingDeprecationWarning, FutureWarning)
# TensorFlow says the first of every policy that is saved with a distribution in its specs, and
# TF-Agents has NumPy say the second of integer specs.
_NOISY_MESSAGES = ("Encoding a StructuredValue with type", "invalid value encountered in cast")


class MissingTfAgentsError(UserError, ModuleNotFoundError):
    """TF-Agents is imported and is not installed; the message says how to install it."""


def prepare() -> None:
    """Sets the environment that TensorFlow and TF-Agents read when they are imported.

    Safe to call any number of times. Later calls change nothing.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _TENSORFLOW_LOG_LEVEL)
    _choose_keras(_installed_version("tensorflow"))
    _provide_distutils()
    _silence_gym()
    _silence_dependencies()
    # Last, so that it is asked only when no other finder knows tf_agents.
    if not any(isinstance(finder, _TfAgentsRemedy) for finder in sys.meta_path):
        sys.meta_path.append(_TfAgentsRemedy())


def _installed_version(distribution: str) -> tuple[int, int] | None:
    """(major, minor) of an installed distribution, read without importing it, or None."""
    try:
        major, minor, *_ = importlib.metadata.version(distribution).split(".")
        return int(major), int(minor)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _choose_keras(tensorflow_version: tuple[int, int] | None) -> None:
    """Has TensorFlow use Keras 2, the only one that TF-Agents works with.

    Before 2.16 Keras 2 is TensorFlow's own, and the variable breaks the import of TensorFlow where
    tf-keras is not installed beside it.
    """
    if tensorflow_version is None:
        return
    if tensorflow_version >= _FIRST_KERAS_3:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    else:
        os.environ.pop("TF_USE_LEGACY_KERAS", None)


def _provide_distutils() -> None:
    """Has TF-Agents find distutils, which Python has no longer from 3.12 on and setuptools brings.

    setuptools offers it when Python starts: not in a notebook that has only just installed it.
    """
    if sys.version_info >= (3, 12) and "_distutils_hack" not in sys.modules:
        try:
            import _distutils_hack
        except ImportError:
            return
        _distutils_hack.add_shim()


def _silence_gym() -> None:
    """Clears the notices that gym, which TF-Agents imports, prints at its import."""
    try:
        from gym_notices import notices
    except ImportError:
        return
    notices.notices.clear()


def _silence_dependencies() -> None:
    """Hides the dependencies' warnings about themselves; all others are shown as before.

    A warning filter would not do: gym puts a filter of its own before it when it is imported.
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
    """Turns "No module named 'tf_agents'" into what to do about it."""

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
