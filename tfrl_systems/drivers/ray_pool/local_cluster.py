"""The program that holds a Ray cluster of one node for as long as its parent lives.

It is started as `python -m tfrl_systems.drivers.ray_pool.local_cluster LIFE ANSWER SAYS DIRECTORY`,
where LIFE, ANSWER and SAYS are numbers of inherited file descriptors. It writes one line of JSON to
ANSWER: the cluster's address and the numbers of its processes, or why there is none. LIFE is the
read end of a pipe whose write end only the parent has. The parent writes to it, or the kernel
closes it however the parent ends. Then the cluster ends too: no process of it is left, and
DIRECTORY, which holds its sockets and logs, is removed.

When a cluster is lost in the midst of a call, Ray ends the parent without a word. SAYS is where the
parent says its errors: this program then says it there instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
from typing import Any, NoReturn

import psutil
import ray

from environments.errors import one_line
from tfrl_systems.drivers.processes import adopt_orphans
from tfrl_systems.drivers.ray_pool import losses

_OBJECT_STORE_BYTES = 256 << 20
# Ray gives its processes half a minute to start. On a busy machine that may be too little.
_MAX_ATTEMPTS = 3
_DEATH_TIMEOUT_S = 5.0
# A process closes its connections, which others notice, before it has ended.
_DYING_S = 0.2
# The processes that a cluster cannot do without.
_NEEDED = ("raylet", "gcs_server")


def main() -> None:
    """Start a cluster, and end it when the parent ends."""
    life_fd, answer_fd, says_fd = (int(number) for number in sys.argv[1:4])
    signal.signal(signal.SIGTERM, _exit)
    adopt_orphans()
    directory = pathlib.Path(sys.argv[4])
    try:
        answer = _start(directory)
        with contextlib.suppress(BrokenPipeError), os.fdopen(answer_fd, "w") as file:
            file.write(json.dumps(answer))
        # Ray has set its own handler.
        signal.signal(signal.SIGTERM, _exit)
        watch = losses.Watch(answer.get("pids", {}))
        is_orderly = bool(os.read(life_fd, 1))
        if not is_orderly and (lost := watch.ended(_DYING_S)):
            os.write(says_fd, f"tfrl: {losses.message(lost)}\n".encode())
    finally:
        family = psutil.Process().children(recursive=True)
        ray.shutdown()
        _kill([*family, *psutil.Process().children(recursive=True)])
        shutil.rmtree(directory, ignore_errors=True)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)


def _start(directory: pathlib.Path) -> dict[str, Any]:
    """Start the cluster; return its `address` and `pids` by name, or an `error` in one line."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            ray.init(
                "local",
                # Workers of a local cluster ask for no processors; see `worker_handle`.
                num_cpus=0,
                num_gpus=0,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                configure_logging=False,
                log_to_driver=False,
                # Ray opens this one to all users; the one around it stays closed.
                _temp_dir=str(directory / "ray"),
                # Nobody asks for the history of all tasks, which would grow from one to the next.
                _system_config={"task_events_report_interval_ms": 0},
            )
            children = {one.name(): one.pid for one in psutil.Process().children()}
            pids = {name: children[name] for name in _NEEDED}
            return {"address": ray.get_runtime_context().gcs_address, "pids": pids}
        except Exception as error:  # whatever Ray raises, the parent has to know
            why = one_line(error)
            ray.shutdown()
    return {"error": why}


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, _DEATH_TIMEOUT_S)


if __name__ == "__main__":
    main()
