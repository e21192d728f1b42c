"""Inlining policies by the name that a user gives: that of a heuristic, or a directory."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from environments.errors import UserError
from environments.files import is_directory
from environments.inlining.heuristics import HEURISTICS, Policy, make_heuristic
from tfrl_systems.policies.policy_files import load_policy_json
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policy.actor_policy import ActorPolicy
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

_NAMES = (shipped.NAME, *HEURISTICS)


def load_policy(name: str, seed: int = 0) -> Policy:
    """Load the policy called `name`.

    Args:
      name: one of `HEURISTICS`, cost<N, `shipped.NAME`, or a directory that `tfrl train` wrote.
      seed: seed of the heuristic `random`.

    Raises:
      UserError: there is no policy of that name, or it is not a policy for inlining.
    """
    if _is_heuristic(name):
        return make_heuristic(name, seed)
    if name == shipped.NAME:
        return CallSitePolicy.load(shipped.DIRECTORY, name)
    directory = pathlib.Path(name)
    if not is_directory(name):
        raise UserError(
            f"policy: expected a policy directory or one of {', '.join(_NAMES)}, cost<N; "
            f"found {name!r}, which is neither"
        )
    described = load_policy_json(directory)
    environment = described.get("environment", "inlining")
    if environment != "inlining":
        raise UserError(
            f"{name}: expected a policy for inlining, found one for {environment}; "
            "name one that tfrl train inlining wrote"
        )
    if described["kind"] == "actor":
        return ActorPolicy.load(directory, name)
    return CallSitePolicy.load(directory, name)


def fingerprints(names: Iterable[str]) -> dict[str, str]:
    """Return the fingerprints of the policies among `names` that are directories, by name.

    Raises:
      UserError: see `load_policy`.
    """
    return {name: load_policy(name).fingerprint for name in names if not _is_heuristic(name)}


def _is_heuristic(name: str) -> bool:
    return name in HEURISTICS or name.startswith("cost<")
