"""Leaves out TensorFlow's SavedModels."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest


class _NoSaver:
    """Stands in for TF-Agents' PolicySaver; it makes an empty directory."""

    def __init__(self, policy: object) -> None:
        pass

    def save(self, directory: str) -> None:
        pathlib.Path(directory).mkdir()


@contextlib.contextmanager
def without_saved_models() -> Iterator[None]:
    """Within it, policies are saved without a SavedModel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tf_agents.policies.policy_saver.PolicySaver", _NoSaver)
        yield
