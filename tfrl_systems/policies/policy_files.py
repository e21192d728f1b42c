"""Reads the files of a saved policy, without TensorFlow.

policy.json        description of the policy and how it was made
numpy_policy.npz   arrays of its model
saved_model.pb …   the TensorFlow SavedModel and TF-Agents' policy_specs.pbtxt
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from environments import files
from environments.errors import UserError

JSON_NAME = "policy.json"
ARRAYS_NAME = "numpy_policy.npz"
FORMAT = "tfrl-policy"
FORMAT_VERSION = 1

KINDS = ("actor", "graph_actor", "controller", "mixture", "networks")
"""The kinds of policies."""


def load_policy_json(directory: pathlib.Path | str) -> dict[str, Any]:
    """Return the fields of a policy's policy.json.

    Raises:
      UserError: the directory holds no policy, a damaged one, or one of another version.
    """
    path = pathlib.Path(directory) / JSON_NAME
    try:
        described = files.read_json(path)
    except OSError as error:
        raise UserError(
            f"{directory}: expected a policy directory with {JSON_NAME}, found {error.strerror}; "
            "name a directory that tfrl train wrote (DIR/policy)"
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: expected JSON, found {error}; export the policy again") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise UserError(
            f'{path}: expected "format": "{FORMAT}", found another file of that name; '
            "name a directory that tfrl train wrote (DIR/policy)"
        )
    if described.get("format_version") != FORMAT_VERSION:
        raise UserError(
            f"{path}: expected format version {FORMAT_VERSION}, found "
            f"{described.get('format_version')}; export the policy again with this version"
        )
    kind = described.get("kind")
    if "kind" in described and kind not in KINDS:
        raise UserError(
            f"{path}: expected a policy of the kind {', '.join(KINDS)}, found {str(kind)[:80]}; "
            "use the version that it was made with"
        )
    missing = [name for name in ("kind", "arrays_sha256") if name not in described]
    if missing:
        raise UserError(
            f"{path}: expected the fields {', '.join(missing)}, found none of them; "
            "export the policy again"
        )
    return described


def load_arrays(
    directory: pathlib.Path | str, described: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return the model's arrays by name, checked against the digest in policy.json, `described`.

    Raises:
      UserError: the file is missing or damaged.
    """
    path = pathlib.Path(directory) / ARRAYS_NAME
    try:
        digest = files.sha256(path)
        if digest != described["arrays_sha256"]:
            raise UserError(
                f"{path}: expected SHA-256 {described['arrays_sha256']}, found {digest}; "
                "the file is damaged or of another policy: export the policy again"
            )
        arrays = files.read_arrays(path)
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name} of the type {array.dtype}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name}: numbers that are not finite")
        return arrays
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected the policy's arrays, found {error}; export the policy again"
        ) from error
