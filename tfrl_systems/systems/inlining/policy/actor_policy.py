"""A policy gradient agent's policy in NumPy, which decides 0 or 1 from named integers."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from environments.errors import UserError
from environments.inlining.features import Scope
from tfrl_systems.policies import policy_files
from tfrl_systems.policies.numpy_actor import load_network
from tfrl_systems.policies.numpy_network import NumpyNetwork
from tfrl_systems.systems.inlining.policy.call_site_policy import columns_of


@dataclasses.dataclass(eq=False)
class ActorPolicy:
    """A policy that takes the likelier action, with the interface of `CallSitePolicy`.

    Rows are processed one at a time, even if there are many. The last bits of a matrix product
    depend on the number of rows, and a policy's decisions must not.

    Attributes:
      network: an actor's network; its observation is a dict of integers, its action 0 or 1.
      feature_names: the keys of that dict.
      fingerprint: hash of everything that decides, equal for equal policies.
      name: for tables and messages.
      scope_feature: outside the scope of this feature LLVM's own decisions hold; see `Scope`.
    """

    network: NumpyNetwork
    feature_names: tuple[str, ...]
    fingerprint: str
    name: str = "learned"
    scope_feature: str = ""

    @classmethod
    def load(cls, directory: pathlib.Path | str, name: str = "") -> ActorPolicy:
        """Read a policy without importing TensorFlow; see `CallSitePolicy.load`."""
        network = load_network(directory)
        described = policy_files.load_policy_json(directory)
        is_actor = described["kind"] == "actor"
        inputs, actions = (described[name] if is_actor else {} for name in ("inputs", "actions"))
        is_ours = all(len(field["path"]) == field["size"] == 1 for field in inputs)
        if not is_ours or (actions.get("kind"), actions.get("size")) != ("categorical", 2):
            raise UserError(
                f"{directory}: expected a policy that decides 0 or 1 from named numbers, found "
                f"one of {described.get('environment', 'something else')}; name another"
            )
        names = tuple(field["path"][0] for field in inputs)
        scope_feature = described.get("scope_feature", "")  # older policies have none
        fingerprint = described["arrays_sha256"] + scope_feature
        return cls(network, names, fingerprint, name or str(directory), scope_feature)

    def begin(
        self, module_name: str, names: tuple[str, ...]
    ) -> Callable[[np.ndarray, int], np.ndarray]:
        """Make a decider for one episode; see `CallSitePolicy.begin`."""
        places = columns_of(self.name, self.feature_names, names)
        place_of = dict(zip(self.feature_names, places.tolist(), strict=True))
        return _Decider(self.network, place_of, Scope.of(self.scope_feature, names))


class _Decider:
    """The decider of a policy; see `ActorPolicy.begin`."""

    def __init__(self, network: NumpyNetwork, place_of: Mapping[str, int], scope: Scope) -> None:
        self._network, self._place_of, self._scope = network, place_of, scope

    def __call__(self, features: np.ndarray, first: int) -> np.ndarray:
        rows = enumerate(features.tolist(), first)
        return np.array([self.decide_row(row, step) for step, row in rows], np.int8)

    def decide_row(self, row: Sequence[int], _: int) -> int:
        """Return the decision for a single row."""
        default = self._scope.default_outside(row)
        if default is not None:
            return default
        values = np.array([row], np.int64)
        observation = {name: values[:, place] for name, place in self._place_of.items()}
        return int(self._network.mode(observation)[0])
