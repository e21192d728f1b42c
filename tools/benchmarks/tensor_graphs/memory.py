"""The peak memory of a task, measured in a process of its own.

    python -m tools.benchmarks.tensor_graphs.memory evaluate POLICY --model …
    python -m tools.benchmarks.tensor_graphs.memory run model.onnx inputs.npz

The first command does what `tfrl evaluate tensor_graphs --policy POLICY --model …` does. The second
runs a model a few times with onnxruntime. Both then print the process's peak memory in bytes.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from environments.errors import UserError

_ROOT = pathlib.Path(__file__).parents[3]
_NUM_RUNS = 3


def peak_bytes(*command: str) -> int:
    """Run a command in a process of its own; return the process's peak memory in bytes.

    Args:
      *command: the command's arguments, as in the module's examples.

    Raises:
      UserError: the command failed.
    """
    arguments = [sys.executable, "-m", "tools.benchmarks.tensor_graphs.memory", *command]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["nothing on stderr"]
        raise UserError(f"{' '.join(command)}: {lines[-1]}")
    return int(ran.stdout.splitlines()[-1])


def peak_of_this_process() -> int:
    """Return the peak memory of this process in bytes.

    It is VmHWM where /proc/self/status can be read, else `ru_maxrss`. On Linux, `ru_maxrss` would
    include the memory of the process that started this one.
    """
    try:
        status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found if sys.platform == "darwin" else 1024 * found
    match = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])


def _evaluate(arguments: Sequence[str]) -> None:
    from tfrl_systems import experiments
    from tfrl_systems.experiments.arguments import add_fields, read_fields
    from tfrl_systems.reporting import Reporter
    from tfrl_systems.systems.tensor_graphs.evaluating import Evaluation

    parser = argparse.ArgumentParser()
    parser.add_argument("policy")
    add_fields(parser, Evaluation)
    options = parser.parse_args(arguments)
    asked = read_fields(options, Evaluation)
    experiments.evaluate("tensor_graphs", policies=[options.policy], reporter=Reporter(), **asked)


def _run(model: pathlib.Path, inputs: pathlib.Path) -> None:
    from environments.tensor_graphs.execution.backends import backend

    program = backend().open(model)
    with np.load(inputs) as given:
        arrays = dict(given)
    for _ in range(_NUM_RUNS):
        program.run(arrays)


def main(arguments: Sequence[str]) -> None:
    """Run what the arguments say, and print the peak memory in bytes."""
    what, *rest = arguments
    if what == "evaluate":
        _evaluate(rest)
    else:
        _run(*map(pathlib.Path, rest))
    print(peak_of_this_process())


if __name__ == "__main__":
    main(sys.argv[1:])
