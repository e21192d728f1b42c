"""A learned policy that needs only NumPy, for collection workers and processes that compile.

Its decisions are those of the TensorFlow policy, bit for bit, for any batch.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments import files
from environments.errors import UserError
from tfrl_systems.policies import policy_files
from tfrl_systems.systems.inlining.policy import cpp, votes
from tfrl_systems.systems.inlining.policy.numpy_networks import NumpyNetworks

# With more, sums of the members' logits and the margin could leave int64.
_MAX_MODELS = 1 << 16
_MAX_MARGIN = 1e6
KIND = "networks"
_FIELDS = {"num_models": int, "features": list, "baseline_feature": str, "scope_feature": str}


class CallSitePolicy:
    """Decides 0 or 1 from a vector of integer features.

    Args:
      description: as `DecisionPolicy.describe` returns it and policy.json holds it.
      arrays: the model's arrays.
      name: for tables and messages.

    Attributes:
      feature_names: names of the features that the policy needs, in the order of its columns: those
        of the model, then the baseline feature and the scope feature.
      baseline_place: position among them of the baseline feature; None if there is none.
      scope_place: position among them of the scope feature; None if `margin` always holds.
      margin: logit added in favour of the baseline's action.
      outside_margin: the same outside the scope.
      parts: `description` and `arrays`.
      fingerprint: hash of everything that decides, equal for equal policies.
    """

    def __init__(
        self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], name: str
    ) -> None:
        self.name = name
        self.parts = (description, arrays)
        trained_on = list(description["features"])
        self._model = NumpyNetworks(arrays, len(trained_on))
        baseline = description["baseline_feature"]
        scope = description.get("scope_feature", "")  # older policies have none
        extra = [name for name in (baseline, scope) if name and name not in trained_on]
        self.feature_names = (*trained_on, *dict.fromkeys(extra))
        self._num_trained_on = len(trained_on)
        self.baseline_place = self.feature_names.index(baseline) if baseline else None
        self.scope_place = self.feature_names.index(scope) if scope and baseline else None
        self.margin = float(description["margin"])
        self.outside_margin = float(description.get("outside_margin", votes.NEVER))
        self.num_models = int(description["num_models"])
        self.fingerprint = _fingerprint(description, arrays)

    @classmethod
    def load(cls, directory: pathlib.Path | str, name: str = "") -> CallSitePolicy:
        """Read a directory that `export.save_policy` wrote, without importing TensorFlow.

        Without a name, tables and messages show the directory's path.

        Raises:
          UserError: there is no policy, or its files are damaged.
        """
        path = pathlib.Path(directory)
        description = policy_files.load_policy_json(path)
        if description["kind"] != KIND:
            raise UserError(
                f"{path}: expected a policy that decides call sites, found one of the kind "
                f"{description['kind']}; name one that tfrl train inlining wrote"
            )
        arrays = policy_files.load_arrays(path, description)
        try:
            _check(description)
            return cls(description, arrays, name or str(directory))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"{path}: expected a policy whose files fit each other, found {error!r}; "
                "export the policy again"
            ) from error

    def with_margins(self, margin: float, outside_margin: float = votes.NEVER) -> CallSitePolicy:
        """Return the same policy with other margins."""
        description, arrays = self.parts
        margins = {"margin": margin, "outside_margin": outside_margin}
        return CallSitePolicy({**description, **margins}, arrays, self.name)

    def to_cpp(self) -> str:
        """Return the policy as a C++ file that decides the same; see `cpp.to_cpp`."""
        return cpp.to_cpp(self)

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return the logit of action 1 against action 0, with the margin, float64 [N].

        Args:
          features: int64 [N, F], with columns as in `feature_names`.
        """
        return self._half_steps(features) / votes.half_steps_per_logit(self.num_models)

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Return the probability of action 1, float64 [N]; features as in `logits`."""
        # This is the logistic function; tanh does not overflow.
        return 0.5 + 0.5 * np.tanh(0.5 * self.logits(features))

    def decide(self, features: np.ndarray) -> np.ndarray:
        """Return the likelier action, int8 [N]; features as in `logits`."""
        return (self._half_steps(features) > 0).view(np.int8)

    def certainty(self, names: Sequence[str], features: np.ndarray) -> np.ndarray:
        """Return |p(1) - p(0)|, margin included, float64 [N]: without, BC-Max's Algorithm 3 has it.

        Args:
          names: names of the features.
          features: int64 [N, len(names)].
        """
        return np.abs(2 * self.probabilities(features[:, self.columns(names)]) - 1)

    def begin(
        self, module_name: str, names: tuple[str, ...]
    ) -> Callable[[np.ndarray, int], np.ndarray]:
        """Make a decider for one episode.

        Returns:
          A function (features int64 [N, len(names)], step number of the first row) -> decisions
          int8 [N].

        Raises:
          UserError: a feature that the policy needs is not among them.
        """
        return _Decider(self, names)

    def columns(self, names: Sequence[str]) -> np.ndarray:
        """Return where the features that the policy needs are; see `columns_of`."""
        return columns_of(self.name, self.feature_names, names)

    def _half_steps(self, features: np.ndarray) -> np.ndarray:
        if self.baseline_place is None:
            return 2 * self._model.votes(features[:, : self._num_trained_on])
        if self.scope_place is None:
            return self._with_margin(features, self.margin)
        inside = features[:, self.scope_place] == 1
        steps = np.empty(len(features), np.int64)
        steps[inside] = self._with_margin(features[inside], self.margin)
        steps[~inside] = self._with_margin(features[~inside], self.outside_margin)
        return steps

    def _with_margin(self, features: np.ndarray, margin: float) -> np.ndarray:
        towards = np.where(features[:, self.baseline_place] > 0, 1, -1)
        if margin < votes.NEVER and len(features):
            counted = self._model.votes(features[:, : self._num_trained_on])
        else:
            counted = np.zeros(len(features), np.int64)  # whatever it is, the margin is larger
        return votes.half_steps(counted, towards, margin, self.num_models)


def columns_of(policy_name: str, needed: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return the positions among `names` of the features that a policy needs, int64 [F].

    Raises:
      UserError: one of these features is missing.
    """
    missing = [name for name in needed if name not in names]
    if missing:
        raise UserError(
            f"policy {policy_name}: expected the features {', '.join(missing)}, found only "
            f"{', '.join(names)}; use the compiler that the policy was trained with, or train "
            "one without them"
        )
    return np.array([names.index(name) for name in needed], np.int64)


class _Decider:
    """The decider of a policy; see `CallSitePolicy.begin`."""

    def __init__(self, policy: CallSitePolicy, names: Sequence[str]) -> None:
        self._policy = policy
        self._columns = policy.columns(names)
        self._places: list[int] = self._columns.tolist()
        # Outside the scope the model need not be asked, if the policy never departs there.
        self._outside: tuple[int, int] | None = None
        scope, baseline = policy.scope_place, policy.baseline_place
        if scope is not None and baseline is not None and policy.outside_margin >= votes.NEVER:
            self._outside = self._places[scope], self._places[baseline]

    def __call__(self, features: np.ndarray, _: int) -> np.ndarray:
        return self._policy.decide(features.take(self._columns, axis=1))

    def decide_row(self, row: Sequence[int], _: int) -> int:
        """Return the decision for a single row."""
        if self._outside is not None:
            scope, baseline = self._outside
            if row[scope] != 1:
                return int(row[baseline] > 0)
        needed = np.array([[row[place] for place in self._places]], np.int64)
        return int(self._policy.decide(needed)[0])


def _check(description: Mapping[str, Any]) -> None:
    """Raise ValueError unless the fields of a policy.json are of the types that training writes."""
    if wrong := files.misfit(description, _FIELDS):
        raise ValueError(wrong)
    features, num_models = description["features"], description["num_models"]
    margins = [description["margin"], description.get("outside_margin", votes.NEVER)]
    if not 1 <= num_models <= _MAX_MODELS:
        raise ValueError(f"num_models {num_models}")
    if not features or not all(isinstance(value, str) for value in features):
        raise ValueError("features that are no list of names")
    if not all(type(value) in (int, float) and abs(value) <= _MAX_MARGIN for value in margins):
        raise ValueError(f"the margins {str(margins)[:80]}")


def _fingerprint(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    deciding = [
        description[name] for name in ("kind", "num_models", "features", "baseline_feature")
    ]
    scope = description.get("scope_feature")
    deciding += [float(description["margin"]), *([scope] if scope else [])]
    outside_margin = float(description.get("outside_margin", votes.NEVER))
    deciding += [outside_margin] if outside_margin < votes.NEVER else []
    digest = hashlib.sha256(json.dumps(deciding).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
