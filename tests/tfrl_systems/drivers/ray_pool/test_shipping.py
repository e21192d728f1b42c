"""Copies of files: found, made once, whole or not at all, and deleted when nobody uses them."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.requirements import NO_RAY

pytest.importorskip("ray", reason=NO_RAY)

from environments.errors import UserError
from tests.checkout import environment
from tfrl_systems.drivers.pipes.messages import pickled
from tfrl_systems.drivers.ray_pool.shipping import Copies, DigestedFiles
from tfrl_systems.drivers.requirements import Files, here, note_copies

CONTENTS = {"alpha/a.bc": b"first", "b.bc": b"second"}


@pytest.fixture
def wanted(tmp_path):
    """Two files as the caller has them; a node has `there`, where they are not."""
    for name, content in CONTENTS.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return DigestedFiles.of(Files(tmp_path / "corpus", tuple(CONTENTS)))


@pytest.fixture
def parts(wanted, tmp_path):
    """What is sent; the caller's own files are then out of sight, as on another machine."""
    contents = list(wanted.parts())
    (tmp_path / "corpus").rename(tmp_path / "elsewhere")
    return contents


@pytest.fixture
def copies(tmp_path):
    return Copies(tmp_path / "copies")


def read(directory):
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_files_at_the_same_path_are_used_if_they_are_the_same(wanted, copies, tmp_path):
    assert copies.find(wanted) == tmp_path / "corpus"
    (tmp_path / "corpus/b.bc").write_bytes(b"Second")
    assert copies.find(wanted) is None
    assert not (tmp_path / "copies").exists()


def test_a_copy_is_private_and_found_and_runners_ask_where_it_is(wanted, parts, copies, tmp_path):
    assert copies.find(wanted) is None
    copies.add(wanted, parts)
    copy = copies.find(wanted)
    assert copy == tmp_path / "copies" / wanted.sha256 and read(copy) == CONTENTS
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    original = tmp_path / "corpus" / "b.bc"
    assert here(original) == original
    note_copies(wanted.files, copy)
    assert here(str(original)) == copy / "b.bc"
    assert here(tmp_path / "corpus" / "c.bc") == tmp_path / "corpus" / "c.bc"


def test_other_contents_are_refused_and_leave_nothing(wanted, copies, tmp_path, parts):
    wrong_parts = [pickled([("alpha/a.bc", b"first"), ("b.bc", b"Second")])]
    with pytest.raises(UserError, match="expected the files as they were when the run began"):
        copies.add(wanted, wrong_parts)
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_damaged_copy_is_made_anew(wanted, parts, copies, tmp_path):
    copies.add(wanted, parts)
    damaged = tmp_path / "copies" / wanted.sha256 / "b.bc"
    damaged.write_bytes(b"sec")
    others = Copies(tmp_path / "copies")
    assert others.find(wanted) is None
    others.add(wanted, parts)
    assert read(others.find(wanted)) == CONTENTS


def test_a_full_disk_is_one_line_and_leaves_nothing(wanted, parts, copies, tmp_path, monkeypatch):
    def fail(path, content, write=pathlib.Path.write_bytes):
        if path.name == "b.bc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_bytes", fail)
        with pytest.raises(
            UserError, match="expected room for copies of .*corpus, found: No space"
        ):
            copies.add(wanted, parts)
    assert list((tmp_path / "copies").iterdir()) == []
    copies.add(wanted, parts)
    assert read(copies.find(wanted)) == CONTENTS


def _add(wanted, parts, directory, taken):
    """As a worker does: it counts the parts that it takes."""

    def one_by_one():
        for part in parts:
            time.sleep(0.2)  # the other process has come to the lock
            taken.send(1)
            yield part

    Copies(directory).add(wanted, one_by_one())
    taken.send(0)


def test_two_workers_at_once_take_the_files_once(wanted, parts, tmp_path):
    # Not forked: this process has threads.
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    arguments = (wanted, parts, tmp_path / "copies", sender)
    workers = [spawning.Process(target=_add, args=arguments) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [receiver.recv() for _ in range(len(parts) + 2)] == [1] * len(parts) + [0, 0]
    assert read(Copies(tmp_path / "copies").find(wanted)) == CONTENTS


SCRIPT = """
import pathlib, signal, sys
from tests.checkout import environment
from tfrl_systems.drivers.pipes.messages import pickled
from tfrl_systems.drivers.ray_pool.shipping import Copies, DigestedFiles
from tfrl_systems.drivers.requirements import Files

def parts():
    yield pickled([("a", b"half")])
    print("half", flush=True)
    signal.pause()

wanted = DigestedFiles(Files(pathlib.Path("/nowhere"), ("a", "b")), ("0", "1"))
Copies(pathlib.Path(sys.argv[1])).add(wanted, parts())
"""


def test_what_a_killed_worker_leaves_is_removed_by_the_next(wanted, parts, copies, tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "copies")]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout.readline() == "half\n"
        killed.send_signal(signal.SIGKILL)
    (left,) = (tmp_path / "copies").iterdir()
    assert read(left) == {"a": b"half"}
    copies.add(wanted, parts)
    assert [copy.name for copy in (tmp_path / "copies").iterdir()] == [wanted.sha256]


def test_copies_that_nobody_uses_go_when_others_come(wanted, parts, copies, tmp_path):
    copies.add(wanted, parts)
    (tmp_path / "c").write_bytes(b"third")
    new = DigestedFiles.of(Files(tmp_path, ("c",)))
    other_parts = list(new.parts())
    (tmp_path / "c").unlink()
    assert copies.find(wanted) is not None  # from now on it is used
    copies.add(new, other_parts)
    assert {copy.name for copy in (tmp_path / "copies").iterdir()} == {wanted.sha256, new.sha256}
    for held in copies.held:  # as the kernel does when the process ends
        os.close(held)
    copies.held.clear()
    (tmp_path / "copies" / new.sha256 / "c").unlink()
    copies.add(new, other_parts)
    assert [copy.name for copy in (tmp_path / "copies").iterdir()] == [new.sha256]


def test_a_directory_that_others_can_enter_is_refused(wanted, parts, copies, tmp_path):
    (tmp_path / "copies").mkdir(mode=0o755)
    with pytest.raises(UserError, match="expected a directory that only this user can enter"):
        copies.add(wanted, parts)
