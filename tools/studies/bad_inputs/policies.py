"""What can be wrong with a policy's directory: damaged, forged, or of something else."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tools.studies.bad_inputs.damage import (
    FAILURE,
    GIVEN,
    PERHAPS,
    Damage,
    MakeFn,
    any_file,
    encoded,
    writer,
    wrong_json,
)
from tools.studies.bad_inputs.models import forged, packed

JSON_NAME, ARRAYS_NAME = "policy.json", "numpy_policy.npz"


class Right(NamedTuple):
    """A right policy, and how it can be made a wrong one.

    Attributes:
      description: policy.json without the digest of the arrays.
      arrays: the arrays by name.
      changes: fields of policy.json that do not fit the rest.
      fine: which of all that is wrong may be right all the same, or make another right policy.
    """

    description: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    changes: Sequence[Mapping[str, Any]]
    fine: Sequence[str] = ()

    def maker(
        self,
        changed: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        make_json: MakeFn | None = None,
        make_arrays: MakeFn | None = None,
    ) -> MakeFn:
        """Return what writes the policy.

        Args:
          changed: other fields of policy.json.
          content: other bytes for the arrays; their digest is right.
          make_json: makes what stands in place of policy.json.
          make_arrays: makes what stands in place of the arrays.
        """
        arrays = packed(self.arrays) if content is None else content
        digest = {"arrays_sha256": hashlib.sha256(arrays).hexdigest()}
        description = encoded({**self.description, **digest, **(changed or {})})

        def make(directory: pathlib.Path) -> None:
            directory.mkdir()
            (make_json or writer(description))(directory / JSON_NAME)
            (make_arrays or writer(arrays))(directory / ARRAYS_NAME)

        return make

    def damages(self, seed: int) -> Iterator[Damage]:
        """Yield what can be wrong with the policy's directory."""
        yield from any_file(b"{}", seed)
        yield Damage("an empty directory", pathlib.Path.mkdir)
        for what, make_fn in self._wrong(seed):
            # JSON's true is Python's 1.
            is_fine = what in (*self.fine, "format_version is true")
            yield Damage(what, make_fn, GIVEN, PERHAPS if is_fine else FAILURE)

    def _wrong(self, seed: int) -> Iterator[tuple[str, MakeFn]]:
        right = packed(self.arrays)
        digest = {"arrays_sha256": hashlib.sha256(right).hexdigest()}
        fields = [(name,) for name in (*self.description, *digest) if name not in _TOLD]
        for what, content in wrong_json({**self.description, **digest}, fields):
            yield what, self.maker(make_json=writer(content))
        for changed in self.changes:
            yield f"policy.json has {str(changed)[:60]}", self.maker(changed=changed)
        for damage in any_file(right, seed):
            if damage.name == GIVEN:
                yield f"arrays: {damage.what}", self.maker(make_arrays=damage.make_fn)
        for what, content in forged(self.arrays):
            yield f"arrays: {what}", self.maker(content=content)


# What only messages and other verbs read.
_TOLD = ("function", "bounds", "permits", "masked", "max_place_logit", "settings",
         "state_dependent_std")  # fmt: skip


def _full(*shape: int, value: Any = 0.5, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, value, dtype)


_UNKNOWN: tuple[Mapping[str, Any], ...] = (
    {"format_version": 2}, {"kind": "graph_actor"}, {"kind": "controller"}, {"kind": "oracle"},
)  # fmt: skip
OPTIMIZER = Right(
    {
        "format": "tfrl-policy", "format_version": 1, "function": "sphere", "dimensions": 2,
        "free": 1, "bounds": None, "environment": "learn_to_optimize", "kind": "actor",
        "inputs": [{"path": [], "size": 2, "is_integer": False}],
        "actions": {
            "kind": "normal", "size": 1, "low": [-1.0], "high": [1.0], "dtype": "float32",
            "num_places": 0,
        },
        "hidden_sizes": [2], "activation": "tanh", "state_dependent_std": False,
        "log_std_limits": [-9.0, 1.0], "permits": "", "masked": -1e9, "max_place_logit": 8.0,
    },
    {
        "kernel_0": _full(2, 2), "bias_0": _full(2), "kernel_1": _full(2, 1), "bias_1": _full(1),
        "log_std": _full(1),
    },
    (
        *_UNKNOWN, {"kind": "networks"}, {"dimensions": 3}, {"free": 2},
        {"hidden_sizes": [10**9]}, {"hidden_sizes": [1] * 100_000}, {"activation": "magic"},
    ),
)  # fmt: skip
# A network without a hidden layer, over ranks of two features.
DECISIONS = Right(
    {
        "format": "tfrl-policy", "format_version": 1, "environment": "inlining",
        "kind": "networks", "num_models": 1, "features": ["callee_users", "inlining_default"],
        "baseline_feature": "inlining_default", "scope_feature": "", "margin": 0.5,
        "outside_margin": 128.0, "settings": {},
    },
    {
        **{name: _full(2, 1, value=0, dtype=np.int64) for name in ("start", "base", "rise")},
        "run": _full(2, 1, value=1, dtype=np.int64),
        "weights_0": _full(1, 2, 1, value=65536.0), "biases_0": _full(1, 1, 1, value=0.0),
    },
    (
        *_UNKNOWN, {"kind": "actor"}, {"features": []}, {"num_models": 10**9}, {"num_models": 0},
        {"features": ['a"; #include "b', "inlining_default"]},
    ),
    (
        *(
            f"{name} is {value}"
            for name in ("margin", "outside_margin")
            for value in ("a negative number", "a fraction")
        ),
        *(
            f"{name} is {value}"
            for name in ("baseline_feature", "scope_feature")
            for value in ("an empty text", "a text of 100,000 letters")
        ),
        *(f"{name} is missing" for name in ("environment", "scope_feature", "outside_margin")),
    ),
)  # fmt: skip
