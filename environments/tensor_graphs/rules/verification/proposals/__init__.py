"""Proposals, which draw the shapes and attributes of each kind of operator.

A proposal fills in the shapes and attributes of one use of an operator that are not known yet. Its
choices mostly fit together, but need not: `table.infer` checks them later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from environments.tensor_graphs.rules.verification.draws import Use
from environments.tensor_graphs.rules.verification.proposals import (
    arithmetic,
    layout,
    reductions,
    windows,
)

Proposal = Callable[[Use], None]


def propose(use: Use) -> None:
    """Draw the shapes and attributes of one use of an operator that are not known yet.

    Raises:
      ImpossibleError: the known shapes and attributes leave no choice.
    """
    usual = arithmetic.unary if len(use.shapes) == 1 else arithmetic.elementwise
    _PROPOSALS.get(use.op, usual)(use)


_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare")
_POOLS = ("MaxPool", "AveragePool")
_GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool")
_PROPOSALS: Mapping[str, Proposal] = {
    "MatMul": arithmetic.matmul,
    "Gemm": arithmetic.gemm,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    "Cast": arithmetic.cast,
    "BatchNormalization": reductions.normalised_channels,
    "InstanceNormalization": reductions.normalised_channels,
    "LayerNormalization": reductions.layer_normalization,
    "Concat": layout.concat,
    "Split": layout.split,
    "Slice": layout.slice_,
    "Transpose": layout.transpose,
    "Reshape": layout.reshape,
    "Pad": layout.pad,
    "Expand": layout.expand,
    "Tile": layout.tile,
    "Gather": layout.gather,
    "Shape": layout.shape_of,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), layout.blocks),
    "Clip": arithmetic.clip,
    "ReduceL2": reductions.reduce,
    **dict.fromkeys(("Softmax", "LogSoftmax", "ArgMax", "ArgMin"), reductions.with_axis),
    **dict.fromkeys(_REDUCTIONS, reductions.reduce),
    **dict.fromkeys(_POOLS, windows.pool),
    **dict.fromkeys(_GLOBAL_POOLS, windows.global_pool),
}
