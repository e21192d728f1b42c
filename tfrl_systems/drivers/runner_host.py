"""Keeps a runner at work, in this process or in a worker, and makes it anew when it has failed."""

from __future__ import annotations

import logging
from typing import Generic

from tfrl_systems.drivers.jobs import Job, MakeRunner, Result, Runner

_log = logging.getLogger(__name__)


class RunnerHost(Generic[Job, Result]):
    """A runner that is sound: one in which a job failed is closed and the next job has a new one.

    Args:
      make_runner: makes it.
    """

    def __init__(self, make_runner: MakeRunner[Job, Result]) -> None:
        self._make_runner = make_runner
        self._runner: Runner[Job, Result] | None = make_runner()
        self._version = 0
        self._data: bytes | None = None

    def load(self, data: bytes, version: int) -> None:
        """Loads data; only then they are this runner's version."""
        self._sound_runner().load(data)
        self._data, self._version = data, version

    def run(self, job: Job, version: int) -> Result:
        """Runs a job with the version of the data that it needs, and with no other.

        Raises:
          RuntimeError: the runner has another version.
        """
        if version != self._version:
            raise RuntimeError(
                f"expected data of version {version} for the job, found version {self._version} "
                "in the runner; broadcast before jobs are sent"
            )
        try:
            return self._sound_runner().run(job)
        except BaseException:
            self._give_up()
            raise

    def close(self) -> None:
        """Closes the runner."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _sound_runner(self) -> Runner[Job, Result]:
        if self._runner is None:
            self._runner = self._make_runner()
            if self._data is not None:
                try:
                    self._runner.load(self._data)
                except BaseException:
                    self._give_up()
                    raise
        return self._runner

    def _give_up(self) -> None:
        try:
            self.close()
        except Exception:
            _log.exception("a runner that is given up could not be closed")
