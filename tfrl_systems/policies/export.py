"""Saves a policy as a directory for TensorFlow, for NumPy and for human readers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import absl.logging
import numpy as np
from tf_agents.policies import policy_saver, tf_policy

from environments import files
from environments.errors import UserError
from tfrl_systems.policies import numpy_actor, policy_files

_VERSIONED = ("tfrl-systems", "tensorflow", "tf-agents", "tensorflow-probability", "numpy")


def save_policy(
    directory: pathlib.Path | str, policy: tf_policy.TFPolicy, metadata: Mapping[str, Any]
) -> str:
    """Write a policy atomically: the directory is complete, or stays as it was.

    Args:
      directory: where to write; replaced if it holds a policy; its parents are made.
      policy: a policy of an agent of `agents/`; users expect the greedy one.
      metadata: JSON values to add to policy.json: environment, compiler, corpus, how to use it.

    Returns:
      SHA-256 of the model's arrays, equal for equal policies.

    Raises:
      UserError: the directory holds something else, or cannot be written.
    """
    target = pathlib.Path(directory)
    _refuse_foreign(target)
    description, arrays = _parts(policy)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            fresh = scratch / "new"
            with quiet():
                policy_saver.PolicySaver(policy).save(str(fresh))
            digest = _write_own_files(fresh, {**metadata, **description}, arrays)
            _replace(target, fresh, scratch / "old")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{target}: expected to write a policy there, found: {error}; "
            "free some space or name another directory"
        ) from error
    return digest


def _replace(target: pathlib.Path, fresh: pathlib.Path, old: pathlib.Path) -> None:
    """Move `target` to `old` and `fresh` to `target`; undo the first move if the second fails."""
    if target.exists():
        target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise


def _parts(policy: tf_policy.TFPolicy) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a policy's description for policy.json, and the arrays that NumPy needs.

    A system's own policy, or the one that it wraps, has a method `saved_parts` that returns both.
    """
    for part in (policy, *policy.submodules):
        if hasattr(part, "saved_parts"):
            return part.saved_parts()
    network, variables = numpy_actor.read_policy(policy)
    arrays = {name: variable.numpy() for name, variable in variables.items()}
    return network.describe(), arrays


def _write_own_files(
    directory: pathlib.Path, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> str:
    arrays_path = directory / policy_files.ARRAYS_NAME
    np.savez_compressed(arrays_path, **arrays)
    digest = files.sha256(arrays_path)
    described = {
        "format": policy_files.FORMAT,
        "format_version": policy_files.FORMAT_VERSION,
        **description,
        "arrays_sha256": digest,
        "versions": _versions(),
    }
    text = json.dumps(described, indent=2) + "\n"
    (directory / policy_files.JSON_NAME).write_text(text, encoding="utf-8")
    return digest


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence TensorFlow's remarks on TF-Agents' signatures and on the files that it writes."""
    verbosity = absl.logging.get_verbosity()
    logger = logging.getLogger("tensorflow")
    level = logger.level
    absl.logging.set_verbosity(absl.logging.ERROR)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        absl.logging.set_verbosity(verbosity)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _refuse_foreign(target: pathlib.Path) -> None:
    """Raise UserError unless the target is missing, empty, or a policy of this project."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        policy_files.load_policy_json(target)
    except UserError as error:
        raise UserError(
            f"{target}: expected a policy directory or none at all, found something else, which "
            "is left alone; name another directory"
        ) from error
