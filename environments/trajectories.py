"""Episodes that are saved to be played again: elsewhere, by others, on the other stack.

A trajectory is a file of JSON with all that decides an episode and all that it led to:

  format, version    "tfrl trajectory", and which one of its forms
  system, settings   what `environments.make` made the environment from
  context, digest    where the episode began, as `reset_at` takes it, and what that held
  actions            those of `wrappers.Flat`: numbers, or vectors of a box
  rewards            one of each action
  observations       a digest of each flat observation, the first one's before any action
  finished, info     whether the episode ended, and what `get_info` told then
  author, versions   whose decisions these are, and the packages that it was made with

`recording.Recorder` writes it, and `replays.replay` plays it again. Flat observations and rewards
are float32, and so the same on machines that round the last bits of float64 otherwise.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from environments import files
from environments.errors import UserError
from environments.machine import package_versions
from environments.wrappers import split_mask

FORMAT = "tfrl trajectory"
VERSION = 1
PACKAGES = ("tfrl-systems", "numpy", "llvmlite", "onnx")
"""The packages whose versions are saved."""

Action = int | tuple[float, ...]
_REMEDY = "name a file that save_trajectory wrote"
_DIGEST_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """An episode, or its beginning, and the environment that it was played in.

    The attributes are the fields of the file. `digest` is "" if the context's name says it all,
    `info` is empty if the episode did not end, and a version is "" if a package of `PACKAGES` is
    not installed.
    """

    system: str
    settings: Mapping[str, Any]
    context: str
    digest: str
    actions: tuple[Action, ...]
    rewards: tuple[float, ...]
    observations: tuple[str, ...]
    is_finished: bool
    info: Mapping[str, str | float]
    author: str
    versions: Mapping[str, str]

    @property
    def reward(self) -> float:
        """The sum of the rewards, rounded once."""
        return math.fsum(self.rewards)

    def save(self, path: pathlib.Path) -> None:
        """Write the file, at once or not at all.

        Raises:
          UserError: it cannot be written, or holds what `load` would refuse.
        """
        fields = {_KEYS.get(name, name): value for name, value in vars(self).items()}
        try:
            _check(fields)
        except ValueError as error:
            raise UserError(f"{path}: {error}; correct that, or save nothing") from None
        fields = {"format": FORMAT, "version": VERSION, **fields}
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
        files.replace(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    @classmethod
    def load(cls, path: pathlib.Path) -> Trajectory:
        """Read a file that `save` wrote.

        Raises:
          UserError: there is none, or it is of another format or damaged.
        """
        try:
            fields = files.read_json(path)
        except OSError as error:
            raise UserError(
                f"{path}: expected a trajectory, found: {error.strerror}; {_REMEDY}"
            ) from None
        except ValueError as error:
            raise UserError(f"{path}: expected JSON, found: {error}; {_REMEDY}") from None
        try:
            return cls._of_fields(fields)
        except ValueError as error:
            raise UserError(f"{path}: {error}; {_REMEDY}") from None

    @classmethod
    def _of_fields(cls, fields: Any) -> Trajectory:
        """Check the content of a file.

        Raises:
          ValueError: a field is missing, unknown or of another type.
        """
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError(f"expected a file of the format {FORMAT!r}, found another one")
        if fields.get("version") != VERSION:
            version = _short(fields.get("version"))
            raise ValueError(f"expected version {VERSION} of the format, found {version}")
        names = {*_CHECKS, "format", "version"}
        if set(fields) != names:
            wrong = ", ".join(sorted(map(_short, set(fields) ^ names)))
            raise ValueError(
                f"expected the fields {', '.join(_CHECKS)}, found a difference: {wrong}"
            )
        _check(fields)
        values = {field: fields[_KEYS.get(field, field)] for field in cls.__dataclass_fields__}
        values["actions"] = tuple(
            tuple(map(float, action)) if isinstance(action, list) else action
            for action in fields["actions"]
        )
        values["rewards"] = tuple(map(float, fields["rewards"]))
        values["observations"] = tuple(fields["observations"])
        return cls(**values)


def digest_of(observation: Any) -> str:
    """Return a digest of a flat observation: of its vector, and of its mask if it has one."""
    arrays = split_mask(observation) if isinstance(observation, Mapping) else (observation,)
    content = b"".join(np.asarray(array).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS]


def versions() -> dict[str, str]:
    """Return the versions of `PACKAGES` that are installed; "" for one that is not."""
    return package_versions(PACKAGES)


def _check(fields: Mapping[str, Any]) -> None:
    """Check the values of all fields.

    Raises:
      ValueError: one is of another type, or as many as actions are not there.
    """
    for name, (kind, fits_fn) in _CHECKS.items():
        if not fits_fn(fields[name]):
            raise ValueError(f"expected {name} as {kind}, found {_short(fields[name])}")
    num_steps = len(fields["actions"])
    for name, count in (("rewards", num_steps), ("observations", num_steps + 1)):
        if len(fields[name]) != count:
            raise ValueError(
                f"expected {count} {name} of {num_steps} actions, found {len(fields[name])}"
            )


def _short(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, as JSON has them."""
    if type(value) not in (int, float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _is_float32(value: Any) -> bool:
    try:
        return is_number(value) and struct.unpack("<f", struct.pack("<f", value)) == (value,)
    except OverflowError:
        return False


def _are(values: Any, fits_fn: Callable[[Any], bool]) -> bool:
    return isinstance(values, list | tuple) and all(map(fits_fn, values))


def _are_actions(values: Any) -> bool:
    if _are(values, lambda value: type(value) is int and 0 <= value < 1 << 63):
        return True
    return _are(values, lambda value: _are(value, _is_float32))


def _is_digest(value: Any) -> bool:
    digits = set("0123456789abcdef")
    return isinstance(value, str) and len(value) == _DIGEST_DIGITS and set(value) <= digits


def _is_info(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(part) or is_number(part) for part in value.values()
    )


_KEYS = {"is_finished": "finished"}
_CHECKS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "system": ("text", _is_text),
    "settings": ("an object", lambda value: isinstance(value, dict)),
    "context": ("text", _is_text),
    "digest": ("text", _is_text),
    "actions": ("a list of numbers from 0 on, or of lists of float32", _are_actions),
    "rewards": ("a list of finite numbers", lambda value: _are(value, is_number)),
    "observations": (
        f"a list of {_DIGEST_DIGITS} hexadecimal digits each",
        lambda value: _are(value, _is_digest),
    ),
    "finished": ("true or false", lambda value: isinstance(value, bool)),
    "info": ("an object of text and finite numbers", _is_info),
    "author": ("text in one line", _is_text),
    "versions": (
        "an object of text",
        lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    ),
}
