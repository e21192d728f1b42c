"""Objectives: the cost that rewriting is to reduce. `make_objective("onnxruntime")` makes one.

onnxruntime, onnxruntime-{disable,basic,extended}, onnxruntime-cuda, openvino
           the time of each operator, measured on this machine and kept on disk; see `measured`
analytic   worked out from operations and bytes; the same on every machine; see `analytic`
"""

from __future__ import annotations

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.table import table_of
from environments.tensor_graphs.execution import backends
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes

NAMES = ("analytic", *backends.NAMES)
"""The names of all objectives; what some of them need may not be installed."""


def make_objective(
    name: str = "onnxruntime", sizes: Sizes = NONE_OPEN, threads: int = 1
) -> AnalyticObjective | MeasuredObjective:
    """Make the objective of one of NAMES, at the sizes that models leave open.

    What is measured runs on so many threads.

    Raises:
      UserError: no objective has this name, or the library that it needs is not installed.
    """
    if name == "analytic":
        return AnalyticObjective(sizes=sizes)
    runs = remote.isolated(name, threads)
    return MeasuredObjective(runs, table_of(runs), sizes)
