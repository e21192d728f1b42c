"""A training run on disk: its settings, its finished iterations, and its result.

DIR/run.json               the settings that decide the result; resuming needs the same ones
DIR/measured.json          what was measured once, before the first iteration, if anything was
DIR/trials.csv             each evaluation of the function, as soon as it was made, if agents that
                           propose trials made any
DIR/checkpoints/000001/    one directory for each saved iteration that is kept (of online learning
                           the last two), complete or not there at all:
    policy/                the policy of the iteration (policies/export.py), if the loop saved it
    iteration.json         the record of the iteration
    sha256.json            the digest of each of these files, by its name; written last
DIR/tensorboard/           curves
DIR/policy/                the policy of the last iteration
DIR/result.json            the outcome; written when the run is finished
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from environments import files
from environments.errors import UserError

_RUN_NAME = "run.json"
_MEASURED_NAME = "measured.json"
_RESULT_NAME = "result.json"
_ITERATION_NAME = "iteration.json"
_DIGESTS_NAME = "sha256.json"
_SCRATCH_NAME = ".unfinished"
# An eager operation names its function, and a traced one its place in the source.
_WHERE_FROM = re.compile(r"\{\{.*?\}\}|\[Op:.*?\]|^  File .*$", re.MULTILINE)

Settings = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A finished iteration that was saved.

    Attributes:
      directory: directory with the files that the training saved, such as `policy/`.
      record: the record that `Workdir.save` was given.
    """

    directory: pathlib.Path
    record: dict[str, Any]


class Workdir:
    """The directory of one run. Make it with `open_workdir`.

    Attributes:
      path: the directory.
      tensorboard: directory of the curves, which TensorBoard shows under the run's own name.
      policy: directory of the last iteration's policy.
      trials: file of the trials that were made.
      settings: settings that decide the run's result.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.tensorboard = path / "tensorboard" / path.resolve().name
        self.policy = path / "policy"
        self.trials = path / "trials.csv"
        self.settings: Settings = {}
        self._checkpoints = path / "checkpoints"
        self._scratch = path / _SCRATCH_NAME

    def checkpoint(self, number: int) -> pathlib.Path:
        """Return the directory in which iteration `number` is kept."""
        return self._checkpoints / f"{number:06d}"

    def load(self, number: int) -> Checkpoint | None:
        """Return the checkpoint of iteration `number`, or None if it was not saved.

        Raises:
          UserError: the checkpoint is damaged: a file is not what `save` wrote.
        """
        directory = self.checkpoint(number)
        if not directory.is_dir():
            return None
        _check_digests(directory)
        return Checkpoint(directory, _read_json(directory / _ITERATION_NAME))

    def last(self) -> int:
        """Return the number of the last iteration that is kept; 0 if there is none."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        """Return the numbers of all iterations that are kept."""
        return sorted(int(directory.name) for directory in self._checkpoints.glob("[0-9]*"))

    def save(
        self,
        number: int,
        write_fn: Callable[[pathlib.Path], None],
        record: Mapping[str, Any],
    ) -> None:
        """Save a finished iteration, numbered from 1, completely or not at all.

        `write_fn` writes `policy/` and all other files to keep into the directory that it gets; the
        record has JSON values.

        Raises:
          UserError: the checkpoint cannot be written.
        """
        with self._writing():
            write_fn(self._scratch)
            _write_json(self._scratch / _ITERATION_NAME, record)
            _write_json(self._scratch / _DIGESTS_NAME, _digests(self._scratch))
            self._checkpoints.mkdir(exist_ok=True)
            self._scratch.rename(self.checkpoint(number))

    def prune(self, num_kept: int) -> None:
        """Remove all but the newest checkpoints, each completely or not at all.

        Raises:
          UserError: the run's directory cannot be written.
        """
        with self._writing():
            for number in self._numbers()[:-num_kept]:
                self.checkpoint(number).rename(self._scratch / str(number))

    def finish(self, number: int, result: Mapping[str, Any]) -> None:
        """Write the policy of iteration `number` and the result into the run's directory.

        Raises:
          UserError: they cannot be written.
        """
        with self._writing():
            shutil.copytree(self.checkpoint(number) / "policy", self._scratch / "policy")
            if self.policy.exists():
                self.policy.rename(self._scratch / "old")
            (self._scratch / "policy").rename(self.policy)
            _write_json(self._scratch / _RESULT_NAME, result)
            (self._scratch / _RESULT_NAME).replace(self.path / _RESULT_NAME)

    def result(self) -> dict[str, Any] | None:
        """Return the contents of result.json, or None if the run is not finished."""
        path = self.path / _RESULT_NAME
        if not os.path.lexists(path):
            return None
        result = _read_json(path)
        if type(result.get("iterations")) is not int:
            raise UserError(
                f"{path}: expected what training wrote, found no number of iterations; remove it, "
                "and go on with --resume"
            )
        return result

    def begin(self, settings: Settings, defaults: Settings, *, resume: bool) -> None:
        """Claim the directory for a run with these settings.

        A run that has saved no iteration has nothing to lose, so any other run may replace it.

        Args:
          settings: all settings that decide the result, as JSON values.
          defaults: what some of them were where a run does not say it.
          resume: whether to continue the run in the directory, if there is one.

        Raises:
          UserError: the directory holds another run, or other files.
        """
        settings = json.loads(json.dumps(settings))
        recorded = self.path / _RUN_NAME
        if self._checkpoints.exists():
            if not resume:
                raise UserError(
                    f"{self.path}: expected a directory without a run, found one; go on with it "
                    "by --resume, or name another with --workdir"
                )
            before = {**defaults, **_read_json(recorded)}
            _check_same(self.path, before, {**defaults, **settings})
        elif not recorded.exists() and any(
            entry.name != _SCRATCH_NAME for entry in self.path.iterdir()
        ):
            raise UserError(
                f"{self.path}: expected an empty directory or a run of tfrl, found other files; "
                "name another with --workdir"
            )
        with self._writing():
            if not self._checkpoints.exists():
                (self.path / _MEASURED_NAME).unlink(missing_ok=True)
                if not (resume and recorded.exists() and _read_json(recorded) == settings):
                    self.trials.unlink(missing_ok=True)
            _write_json(self._scratch / _RUN_NAME, settings)
            (self._scratch / _RUN_NAME).replace(recorded)
        self.settings = settings

    def once(self, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return what was measured for this run, JSON values; measure it if it was not.

        Raises:
          UserError: it cannot be written.
        """
        path = self.path / _MEASURED_NAME
        if path.exists():
            return _read_json(path)
        measured = dict(measure())
        with self._writing():
            _write_json(self._scratch / _MEASURED_NAME, measured)
            (self._scratch / _MEASURED_NAME).replace(path)
        return measured

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Provide an empty scratch directory, without what a killed run left in it.

        Raises:
          UserError: the directory, or a file in it, cannot be written.
        """
        try:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            yield
        except OSError as error:
            raise _cannot_write(self.path, str(error)) from error
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)


@contextlib.contextmanager
def open_workdir(
    path: pathlib.Path, settings: Settings, defaults: Settings | None = None, *, resume: bool
) -> Iterator[Workdir]:
    """Open the directory of a run, for this process alone.

    It is made if it is missing, and claimed by `Workdir.begin`. If a UserError ends the run before
    its first checkpoint, the directory is as it was before.

    Raises:
      UserError: the directory cannot be made, another process trains there, or it holds another
        run. Or TensorFlow could not write a file below it.
    """
    try:
        new_directories = [
            directory for directory in (path, *path.parents) if not directory.exists()
        ]
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UserError(
            f"{path}: expected to make a directory for the run, found: {error.strerror}; "
            "name another with --workdir"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        workdir = Workdir(path)
        with _undone_without_checkpoints(workdir, new_directories):
            workdir.begin(settings, defaults or {}, resume=resume)
            yield workdir
    except BlockingIOError as error:
        raise UserError(
            f"{path}: expected a run that nobody works on, found another process at work on it; "
            "wait for it, or name another with --workdir"
        ) from error
    except tf.errors.OpError as error:
        why = _what_tensorflow_says_of(path, error)
        if why is None:
            raise
        raise _cannot_write(path, why) from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _undone_without_checkpoints(
    workdir: Workdir, new_directories: Sequence[pathlib.Path]
) -> Iterator[None]:
    """Empty a directory that was empty before, and remove what was made, if nothing was saved."""
    was_empty = not any(workdir.path.iterdir())
    try:
        yield
    except (UserError, tf.errors.OpError):
        if was_empty and not workdir.last() and not workdir.trials.exists():
            with contextlib.suppress(OSError):
                for entry in workdir.path.iterdir():
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                for directory in new_directories:
                    directory.rmdir()
        raise


def _cannot_write(path: pathlib.Path, why: str) -> UserError:
    return UserError(
        f"{path}: expected to write there, found: {why}; free some space, then go on with --resume"
    )


def _what_tensorflow_says_of(path: pathlib.Path, error: tf.errors.OpError) -> str | None:
    """Return what an error says of a file below `path`, without where it came from."""
    lines = _WHERE_FROM.sub("", error.message).splitlines()
    return next((line.strip() for line in lines if f"{path}{os.sep}" in line), None)


def _check_same(path: pathlib.Path, before: Settings, now: Settings) -> None:
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if old != new:
            raise UserError(
                f"{path}: expected to resume with {name} = {json.dumps(old)} as the run began, "
                f"found {json.dumps(new)}; give the same, or name another directory with "
                "--workdir"
            )


def _digests(directory: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a directory, by its relative path."""
    return {
        str(path.relative_to(directory)): files.sha256(path)
        for path in sorted(directory.rglob("*"))
        if not path.is_dir() and path.name != _DIGESTS_NAME
    }


def _check_digests(directory: pathlib.Path) -> None:
    expected = _read_json(directory / _DIGESTS_NAME)
    try:
        actual = _digests(directory)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; {_remedy(directory)}") from error
    for name in sorted(expected.keys() | actual.keys()):
        if expected.get(name) != actual.get(name):
            raise UserError(
                f"{directory / name}: expected the file that training wrote, found "
                f"{'another' if name in actual else 'none'}; {_remedy(directory)}"
            )


def _remedy(directory: pathlib.Path) -> str:
    return f"remove {directory} to go on from the checkpoint before it"


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = files.read_json(path)
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
        return content
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected what training wrote, found: {error}; remove the run's directory "
            "and train again"
        ) from error


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
