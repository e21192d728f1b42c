"""The warm start: an actor that begins with the weights of a saved policy."""

from __future__ import annotations

from typing import Any

from environments.errors import UserError
from tfrl_systems.policies import policy_files


def copy_actor(network: Any, directory: str) -> None:
    """Give an actor the weights of a saved policy.

    Args:
      network: the actor network of an agent.
      directory: directory of the policy.

    Raises:
      UserError: the directory holds no policy, or one whose network has other variables.
    """
    described, kind = policy_files.load_policy_json(directory), network.describe()["kind"]
    if described["kind"] != kind:
        raise UserError(
            f"{directory}: expected a policy of the kind {kind}, as this run learns one, found "
            f"{described['kind']}; name another, or give PPO one answer (--set components=1)"
        )
    arrays = policy_files.load_arrays(directory, described)
    named = network.named_variables()
    wanted = {name: tuple(variable.shape) for name, variable in named.items()}
    saved = {name: array.shape for name, array in arrays.items()}
    if wanted != saved:
        differing = [name for name in sorted(wanted | saved) if wanted.get(name) != saved.get(name)]
        raise UserError(
            f"{directory}: expected a policy with the network of this run, found another "
            f"{differing[0]}: {saved.get(differing[0])}, not {wanted.get(differing[0])}; give this "
            "run the sizes of that one (--set hidden_sizes=…), or another warm_start"
        )
    for name, variable in named.items():
        variable.assign(arrays[name])
