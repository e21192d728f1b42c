"""The margin that a tree is built with, and the file that keeps it: tfrl.margins.

A policy departs from LLVM's decision only where its logit exceeds its margin. A larger margin is
more cautious; with the largest, a build is plain.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.heuristics import Policy
from environments.inlining.plugin.steering import Compile
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.policy import votes
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

FILE = "tfrl.margins"
"""Name of the file, in the directory that a command builds in."""

_VERSION = 1
_FIELDS = {"policy": str}


@dataclasses.dataclass(frozen=True)
class Margin:
    """How sure a policy must be to depart from LLVM.

    Attributes:
      logit: the margin; None for a build without a policy, or with one that has no margin.
      is_own: whether the policy brings it along.
    """

    logit: float | None
    is_own: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the build is LLVM's alone."""
        return self.logit is None and not self.is_own

    @property
    def steps(self) -> int | None:
        """What a plugin is told, in 2^-24 of a logit; None for nothing."""
        return None if self.is_own or self.logit is None else votes.steps_of(self.logit)

    def __str__(self) -> str:
        return "plain" if self.logit is None else f"{self.logit:g}{' (own)' if self.is_own else ''}"


PLAIN = Margin(None)


def own_margin(policy: Policy) -> Margin:
    """Return the margin that a policy brings along."""
    if not isinstance(policy, CallSitePolicy) or policy.baseline_place is None:
        return Margin(None, is_own=True)
    return Margin(min(max(policy.margin, -votes.NEVER), votes.NEVER), is_own=True)


def read(directories: Sequence[pathlib.Path], policy: Policy, reporter: Reporter) -> Margin:
    """Return the margin that was chosen for a tree and a policy; the policy's own without a file.

    Args:
      directories: those that the command builds in, the outermost first. The file that is deepest
        counts.
      policy: decides.
      reporter: is told of the file.

    Raises:
      UserError: the file is damaged.
    """
    own = own_margin(policy)
    path = next((at / FILE for at in reversed(directories) if files.exists(at / FILE)), None)
    if path is None:
        return own
    fields = _read(path)
    if fields["policy"] != policy.fingerprint:
        reporter.say(f"{path} is of another policy and is ignored; --tune makes one for this")
        return own
    margin = Margin(fields["margin"])
    if margin.logit == own.logit:
        margin = own
    reporter.say(f"{path}: {describe(margin, own)}")
    return margin


def describe(margin: Margin, own: Margin) -> str:
    """Return in words what a margin means for a build."""
    if margin.is_plain:
        return "plain LLVM decides, with which this tree is smallest"
    return f"the margin is {margin}" + ("" if margin.is_own else f" in place of {own}")


def why_lost(margin: Margin, compiles: Sequence[Compile]) -> str:
    """Return why some compiles were with the policy's own margin; "" if none was."""
    steered = [compile_ for compile_ in compiles if not compile_.reason]
    if margin.steps is None or all(compile_.margin == margin.steps for compile_ in steered):
        return ""
    return f"clangs did not get TFRL_INLINING_MARGIN, so {margin} is not their margin; pass it on"


def write(directory: pathlib.Path, policy: Policy, margin: Margin, sizes: Mapping[str, int]) -> str:
    """Write the file, with the sizes in bytes that it was chosen for; return its path.

    Raises:
      UserError: it cannot be written.
    """
    path = directory / FILE
    fields = {
        "version": _VERSION,
        "policy": policy.fingerprint,
        "margin": None if margin.is_plain else margin.logit,
        **sizes,
    }
    files.replace(path, json.dumps(fields, indent=1).encode() + b"\n")
    return str(path)


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        fields = files.read_json(path)
        if not isinstance(fields, dict) or not {"version", "policy", "margin"} <= fields.keys():
            raise ValueError("something else")
        if fields["version"] != _VERSION:
            raise ValueError(f"version {str(fields['version'])[:20]}")
        if wrong := files.misfit(fields, _FIELDS):
            raise ValueError(wrong)
        margin = fields["margin"]
        is_number = type(margin) in (int, float) and math.isfinite(margin)
        if margin is not None and not (is_number and abs(margin) <= votes.NEVER):
            raise ValueError(f"the margin {json.dumps(margin)[:80]}")
        return {"policy": fields["policy"], "margin": margin}
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected what tfrl build --tune writes, found {error}; remove the file, or "
            "tune again"
        ) from error
