"""What a program uses in place is not removed from under it."""

from __future__ import annotations

import fcntl
import os
import signal
import time

from environments.caches import directories
from tests.environments.caches.processes import SERVER, started

BOUND_BYTES = 3 * 4096


def fill(directory, name: str, age_s: float) -> None:
    path = directories.entry(directory, name, BOUND_BYTES)
    (path / "library").write_bytes(bytes(4096))
    os.utime(path, (time.time() - age_s,) * 2)


def use(directory, name: str, ready) -> None:
    assert (directories.entry(directory, name, BOUND_BYTES) / "library").exists()
    ready.set()
    time.sleep(60)


def elsewhere(target, *arguments):
    """Run a function in a process of its own, whose end releases what it holds."""
    process = SERVER.Process(target=target, args=arguments)
    process.start()
    process.join(30)
    assert process.exitcode == 0


def test_nothing_is_removed_while_a_process_holds_it(tmp_path):
    elsewhere(fill, tmp_path, "a", 0.0)
    with started(use, tmp_path, "a"):
        assert not directories.clear(tmp_path) and (tmp_path / "a" / "library").exists()
    # The lock of a process that was killed is free.
    assert directories.clear(tmp_path) and not (tmp_path / "a").exists()
    assert directories.clear(tmp_path)


def test_the_next_process_removes_what_was_not_used_for_longest(tmp_path):
    for name, age_s in (("a", 400), ("b", 300), ("c", 200), ("d", 100)):
        elsewhere(fill, tmp_path, name, age_s)
    # Four of three blocks: "a" went when the next one, which is none of them, came.
    elsewhere(fill, tmp_path, "e", 0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["b", "c", "d", "e"]


def lock_and_stop(directory, ready) -> None:
    with (directory / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready.set()
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_was_stopped_ends_nobodys_run(tmp_path, monkeypatch):
    """It may have been stopped while it made room; then nobody waits for it for long."""
    monkeypatch.setattr(directories, "_SHORT_WAIT_S", 0.2)
    elsewhere(fill, tmp_path, "a", 0.0)
    with started(lock_and_stop, tmp_path):
        assert (directories.entry(tmp_path, "a", BOUND_BYTES) / "library").exists()


def test_a_pipe_in_the_place_of_the_lock_blocks_nobody(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    assert directories.entry(tmp_path, "one", BOUND_BYTES).is_dir()
