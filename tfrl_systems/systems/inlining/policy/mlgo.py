"""Saves an inlining policy as a model for LLVM's own modes, in the layout of ml-compiler-opt.

The directory holds a SavedModel and output_spec.json. Its signature `action` takes what LLVM's
advisor feeds: each feature under LLVM's name, int64 [1]; LLVM's own decision as inlining_default;
and discount, reward and step_type, which TF-Agents' policies have and nobody reads. It returns
inlining_decision, int64 [1].
"""

from __future__ import annotations

import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from environments.errors import UserError
from tfrl_systems.policies.export import quiet
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_network import DecisionNetworks
from tfrl_systems.systems.inlining.policy.decision_policy import DecisionPolicy

_DEFAULT_FEATURE = "inlining_default"
_DECISION = "inlining_decision"
_SIGNATURE = "action"


def save_mlgo(
    directory: pathlib.Path, policy: CallSitePolicy, llvm_features: Sequence[str]
) -> None:
    """Write a policy for LLVM's own modes; the directory is complete, or not there.

    Args:
      directory: where to write; nothing may be there, or an empty directory.
      policy: a policy that decides call sites.
      llvm_features: the features that LLVM's advisor computes.

    Raises:
      UserError: the policy needs other features, or the directory cannot be written.
    """
    offered = (*llvm_features, _DEFAULT_FEATURE)
    if missing := [name for name in policy.feature_names if name not in offered]:
        raise UserError(
            f"{policy.name}: expected a policy of LLVM's own features alone, found one that needs "
            f"{', '.join(missing)}, which LLVM's modes do not feed; use --format clang-plugin, or "
            f"train one: --set scope=all --set features={','.join(llvm_features[:3])},…"
        )
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise UserError(
            f"{directory}: expected a new directory, found something there; name another"
        )
    try:
        model = _Model(policy)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{policy.name}: expected a policy whose files fit each other, found {error!r}; "
            "export the policy again"
        ) from error
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{directory.name}.", dir=directory.parent
        ) as scratch:
            fresh = pathlib.Path(scratch) / "new"
            specs = _input_specs(dict.fromkeys(offered))
            with quiet():
                signature = model.action.get_concrete_function(**specs)
                tf.saved_model.save(model, str(fresh), signatures={_SIGNATURE: signature})
            text = json.dumps(_output_spec(fresh), indent=2) + "\n"
            (fresh / "output_spec.json").write_text(text, encoding="utf-8")
            if directory.is_dir():
                directory.rmdir()
            shutil.move(fresh, directory)
    except OSError as error:
        raise UserError(
            f"{directory}: expected to write a model there, found: {error}; "
            "free some space or name another directory"
        ) from error


class _Model(tf.Module):
    def __init__(self, policy: CallSitePolicy) -> None:
        super().__init__(name="inliner")
        description, arrays = policy.parts
        self._policy = DecisionPolicy(
            policy.feature_names,
            DecisionNetworks.from_arrays(arrays),
            description["features"],
            description["baseline_feature"],
            description.get("scope_feature", ""),
            policy.margin,
            {},
        )
        self._policy.set_margins(policy.margin, policy.outside_margin)

    @tf.function(autograph=False)
    def action(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the decision for the advisor's inputs, each of shape [1]."""
        logits = self._policy.logits(inputs)
        return {_DECISION: tf.cast(logits[..., 1] > logits[..., 0], tf.int64)}


def _input_specs(names: Iterable[str]) -> dict[str, tf.TensorSpec]:
    specs = {name: tf.TensorSpec([1], tf.int64, name) for name in names}
    specs |= {name: tf.TensorSpec([1], tf.float32, name) for name in ("discount", "reward")}
    return {**specs, "step_type": tf.TensorSpec([1], tf.int32, "step_type")}


def _output_spec(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Return where LLVM finds the decision in the graph of a SavedModel."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(directory))
    name, _, port = graph.signature_def[_SIGNATURE].outputs[_DECISION].name.partition(":")
    tensor = {"name": name, "port": int(port), "type": "int64_t", "shape": [1]}
    return [{"logging_name": _DECISION, "tensor_spec": tensor}]
