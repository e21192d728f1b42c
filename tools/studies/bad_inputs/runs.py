"""Runs that are damaged, and are to go on."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tools.studies.bad_inputs.damage import Damage, MakeFn, flipped_bits, nothing, writer

TRAIN = (
    "train learn_to_optimize --agent ppo --function sphere --iterations 1 --set num_chunks=1 "
    "--set episodes_per_chunk=2 --set hidden_sizes=2 --collect inprocess"
)
_CHECKPOINT = "checkpoints/000001"


def damaged_runs(seed: int, scratch: pathlib.Path) -> Iterator[Damage]:
    """Yield directories of runs that are damaged, copies of one that is trained in `scratch`."""
    for name in ("iteration.json", "sha256.json", "state.index", "state.data-00000-of-00001"):
        changes: dict[str, MakeFn] = {
            "missing": pathlib.Path.unlink,
            "empty": writer(b""),
            "a pipe": _instead(os.mkfifo),
            "a directory": _instead(pathlib.Path.mkdir),
            **{f"flipped {k}": _flip(seed, k) for k in range(4)},
        }
        for what, change_fn in changes.items():
            # A run that has its result is finished, and reads no checkpoint.
            change = _changed(f"{_CHECKPOINT}/{name}", change_fn, without="result.json")
            yield Damage(f"{name} {what}", _copied(scratch, change))
    for name in ("result.json", "run.json"):
        for content in (b"", b"[]", b"{", b"{}"):
            change = _changed(name, writer(content))
            yield Damage(f"{name} is {content.decode()!r}", _copied(scratch, change))


def trained(scratch: pathlib.Path) -> MakeFn:
    """Return what makes a finished run."""
    return _copied(scratch, nothing)


def _changed(name: str, change_fn: MakeFn, without: str = "") -> MakeFn:
    def change(run: pathlib.Path) -> None:
        if without:
            (run / without).unlink()
        change_fn(run / name)

    return change


def _instead(make_fn: MakeFn) -> MakeFn:
    def change(path: pathlib.Path) -> None:
        path.unlink()
        make_fn(path)

    return change


def _flip(seed: int, number: int) -> MakeFn:
    return lambda path: path.write_bytes(flipped_bits(path.read_bytes(), seed, number))


def _copied(scratch: pathlib.Path, change_fn: MakeFn) -> MakeFn:
    """Return what copies a finished run, which the first case trains, and changes it."""

    def make(directory: pathlib.Path) -> None:
        scratch.mkdir(exist_ok=True)
        with (scratch / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (scratch / "trained").exists():
                _train(scratch)
        shutil.copytree(scratch / "trained", directory)
        change_fn(directory)

    return make


def _train(scratch: pathlib.Path) -> None:
    place, temporary = scratch / "training", scratch / "temporary"
    temporary.mkdir(exist_ok=True)
    words = [*TRAIN.split(), "--workdir", str(place)]
    # Nothing else can be written here.
    root = str(pathlib.Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-m", "tfrl_systems.cli.main", *words],
        capture_output=True,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"expected a run to damage, found {done.stderr[-2000:]!r}")
    place.rename(scratch / "trained")
