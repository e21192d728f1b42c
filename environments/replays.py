"""Plays saved trajectories again, and tells the first difference."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import environments
from environments.errors import UserError, one_line
from environments.trajectories import Action, Trajectory, digest_of, versions
from environments.wrappers import Flat

# Processors differ in the last bits of float64 sums, and so in what `get_info` tells. A reward is a
# float32, whose neighbours differ by more than this unless it is next to nothing.
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12

# Settings whose value names a program or a module to run, and the values that do not.
_HARMLESS: Mapping[str, Callable[[Any], bool]] = {
    "compiler": lambda value: value == "embedded",
    "function": lambda value: isinstance(value, str) and ":" not in value,
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where a replay first differs from what was saved; as text, one line that says it all.

    Attributes:
      step: number of actions before it.
      what: what differs: context, observation, action, reward, end, or a name in `get_info`.
      saved: what the trajectory says.
      played: what this machine says.
      remark: versions of packages that differ, too; "" if none does.
    """

    step: int
    what: str
    saved: str
    played: str
    remark: str = ""

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        return f"step {self.step}: expected {self.what} {self.saved}, found {self.played}{remark}"


def replay(
    trajectory: Trajectory, *, context: str | None = None, **overrides: Any
) -> Difference | None:
    """Play a trajectory again in a new environment.

    Args:
      trajectory: what was saved.
      context: the context's name, if it has another one here, such as the path of a model.
      **overrides: settings that replace the trajectory's, such as where the corpus lies here. A
        compiler or a function of the trajectory's own is only run if it is named here again, since
        the file may be a stranger's.

    Returns:
      The first difference, or None: all is equal.

    Raises:
      UserError: no environment can be made of the settings, they would run a program that is not
        named by `overrides`, or there is no such context.
    """
    for name, is_harmless in _HARMLESS.items():
        value = trajectory.settings.get(name)
        if name not in overrides and name in trajectory.settings and not is_harmless(value):
            raise UserError(
                f"expected a {name} of this package, found {value!r}, which would be run; if you "
                f"trust it, name it yourself: tfrl replay --{name} {value}"
            )
    environment = None
    try:
        settings = {**trajectory.settings, **overrides}
        environment = Flat(environments.make(trajectory.system, **settings))
        if context is not None:
            trajectory = _renamed(trajectory, context)
        environment.reset_at(trajectory.context)
        difference = next(_differences(environment, trajectory), None)
    except UserError:
        raise
    except Exception as error:
        # Settings of any type can come from a file.
        raise UserError(
            f"expected settings that {trajectory.system} can be played with, found: "
            f"{one_line(error)}; correct the settings in the file"
        ) from error
    finally:
        if environment is not None:
            environment.close()
    if difference is None:
        return None
    return dataclasses.replace(difference, remark=_remark(trajectory))


def _renamed(trajectory: Trajectory, context: str) -> Trajectory:
    """Return a trajectory whose context has another name; its digest stays."""
    info = dict(trajectory.info)
    if info.get("context") == trajectory.context:
        info["context"] = context
    return dataclasses.replace(trajectory, context=context, info=info)


def _differences(environment: Flat, trajectory: Trajectory) -> Iterator[Difference]:
    """Play an episode that has begun; yield where it differs, at once."""
    digest = environment.environment.views()["context"]["digest"]
    yield from _compared(0, "context with the digest", trajectory.digest, digest)
    time_step = environment.current_time_step()
    yield from _compared(
        0, "observation", trajectory.observations[0], digest_of(time_step.observation)
    )
    outcomes = zip(trajectory.actions, trajectory.rewards, trajectory.observations[1:], strict=True)
    for step, (action, reward, observation) in enumerate(outcomes, 1):
        if time_step.is_last():
            yield Difference(step - 1, "end", "later", "here")
            return
        try:
            time_step = environment.step(_checked(environment, action))
        except ValueError as error:
            yield Difference(step, "action", f"{action}, which is possible", one_line(error))
            return
        yield from _compared(step, "reward", reward, float(time_step.reward))
        yield from _compared(step, "observation", observation, digest_of(time_step.observation))
    last, is_last = len(trajectory.actions), bool(time_step.is_last())
    if trajectory.is_finished != is_last:
        when = ("later", "here")
        yield Difference(last, "end", when[trajectory.is_finished], when[is_last])
        return
    info: Mapping[str, Any] = environment.get_info() if is_last else {}
    for name in sorted({*trajectory.info, *info}):
        missing = "nothing"
        yield from _compared(
            last, name, trajectory.info.get(name, missing), info.get(name, missing)
        )


def _compared(step: int, what: str, saved: Any, played: Any) -> Iterator[Difference]:
    is_equal = saved == played
    if isinstance(saved, float) and isinstance(played, float):
        is_equal = math.isclose(saved, played, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    if not is_equal:
        yield Difference(step, what, str(saved), str(played))


def _checked(environment: Flat, action: Action) -> Any:
    """Return an action as the environment takes it.

    Raises:
      ValueError: it takes actions of another form.
    """
    spec = environment.action_spec()
    if environment.num_actions:
        if not isinstance(action, int):
            raise ValueError("a number is needed, and not a vector")
        return action
    vector = np.array(action, np.float32)
    if vector.shape != spec.shape:
        raise ValueError(f"a vector of the shape {spec.shape} is needed")
    return vector


def _remark(trajectory: Trajectory) -> str:
    """Return which packages have other versions here than where the trajectory was made."""
    return "; ".join(
        f"made with {name} {trajectory.versions[name] or 'not installed'}, here "
        f"{version or 'not installed'}"
        for name, version in versions().items()
        if trajectory.versions.get(name, version) != version
    )
