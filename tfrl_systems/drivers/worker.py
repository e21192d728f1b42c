"""What a worker process is started with, and holds: one runner, replaced after a failure."""

from __future__ import annotations

import gc
import logging
import time
import zlib
from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from tfrl_systems.drivers.jobs import Job, MakeRunner, Result, Runner
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled, unpickled

_log = logging.getLogger(__name__)

# Several workers share a machine: each uses one core, and never the GPU that the learner needs.
SINGLE_THREADED = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
# Larger results are compressed before they travel to another node: padded graphs to a 25th.
_LARGE_BYTES = 1 << 20


class RestartingRunner(Generic[Job, Result]):
    """A runner that is replaced when a job fails in it, so that no trace of the job is left.

    Args:
      make_runner: makes the runner, at once and after each failure.
      unpack_fn: turns the broadcast data into what the runner loads; called for each runner.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        unpack_fn: Callable[[Any], Any] = lambda data: data,
    ) -> None:
        self._make_runner = make_runner
        self._unpack_fn = unpack_fn
        self._runner: Runner[Job, Result] | None = make_runner()
        self._version = 0
        self._data: Any = None

    def load(self, data: Any, version: int) -> None:
        """Load data. On an error the runner keeps its version."""
        self._ready_runner().load(self._unpack_fn(data))
        self._data, self._version = data, version

    def run(self, job: Job, version: int) -> Result:
        """Run a job that needs the data of `version`.

        Raises:
          RuntimeError: the runner has data of another version.
        """
        if version != self._version:
            raise RuntimeError(
                f"expected data of version {version} for the job, found version {self._version} "
                "in the runner; broadcast before jobs are sent"
            )
        try:
            return self._ready_runner().run(job)
        except BaseException:
            self._discard()
            raise

    def close(self) -> None:
        """Close the runner."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _ready_runner(self) -> Runner[Job, Result]:
        if self._runner is None:
            self._runner = self._make_runner()
            if self._version:
                try:
                    self._runner.load(self._unpack_fn(self._data))
                except BaseException:
                    self._discard()
                    raise
        return self._runner

    def _discard(self) -> None:
        try:
            self.close()
        except Exception:
            _log.exception("a runner in which a job failed could not be closed")


class Answer(NamedTuple):
    """What a call came to.

    Attributes:
      payload: the pickled result, or the pickled `RemoteError`.
      is_error: whether it is an error.
      seconds: time that the worker spent on it.
      is_compressed: whether the payload is, by zlib.
    """

    payload: bytes | bytearray = b""
    is_error: bool = False
    seconds: float = 0.0
    is_compressed: bool = False

    @property
    def value(self) -> Any:
        """The result, or the `RemoteError`."""
        return unpickled(zlib.decompress(self.payload) if self.is_compressed else self.payload)

    def compressed(self) -> Answer:
        """Return the same answer in fewer bytes, if there are many."""
        if len(self.payload) < _LARGE_BYTES:
            return self
        return self._replace(payload=zlib.compress(self.payload, 1), is_compressed=True)


class Worker:
    """Makes a runner, then loads data and runs jobs; its pool makes one call at a time."""

    _runner: RestartingRunner[Any, Any]

    def start(self, make_runner_pickled: bytes | bytearray) -> Answer:
        """Make the runner."""

        def make() -> None:
            # Unpickled anew for each runner, so that a failed runner leaves nothing to the next.
            self._runner = RestartingRunner(lambda: unpickled(make_runner_pickled)(), unpickled)
            # All objects made so far will stay, so the garbage collector need not look at them.
            gc.collect()
            gc.freeze()

        return answer_of(make)

    def load(self, data_pickled: bytes, version: int) -> Answer:
        """Load data of a broadcast."""
        return answer_of(lambda: self._runner.load(data_pickled, version))

    def run(self, job_pickled: bytes, version: int) -> Answer:
        """Run a job that needs the data of `version`."""
        return answer_of(lambda: self._runner.run(unpickled(job_pickled), version))

    def close(self) -> None:
        """Close the runner, if it was made."""
        if hasattr(self, "_runner"):
            self._runner.close()


def answer_of(function: Callable[[], Any]) -> Answer:
    """Call a function; return its result or its exception as an answer."""
    began_s = time.perf_counter()
    try:
        result = function()
        seconds = time.perf_counter() - began_s
        return Answer(pickled(result), seconds=seconds)
    except Exception as error:
        return Answer(pickled(RemoteError.of(error)), is_error=True)
