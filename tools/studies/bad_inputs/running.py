"""Run a case in a process of its own, and say what is wrong with how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import resource
import runpy
import shutil
import signal
import stat
import sys
import time
import traceback

from environments import files
from tools.studies.bad_inputs.table import Case
from tools.studies.faults.runs import GENERATED

PROGRAM = "tfrl_systems.cli.main"
TIME_LIMIT_S = 60.0
FAULTS = (
    *("tracebacks", "wrong status", "not one line", "stdout", "files left", "left running"),
    "slow",
)
_MEMORY_BYTES = 24 << 30
_OWN_LINE = re.compile(r"tfrl( [a-z_]+)*: ")
_ROOT = pathlib.Path(__file__).parents[3]


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a case ended.

    Attributes:
      verb: the case's verb.
      what: what was wrong with its input.
      words: its command line.
      seconds: how long it took.
      faults: what is wrong with its end, by class (a column of the table).
      said: the end of what it wrote to stderr.
    """

    verb: str
    what: str
    words: tuple[str, ...]
    seconds: float
    faults: dict[str, str]
    said: str


def run(verb: str, case: Case, place: pathlib.Path, *, is_fresh: bool) -> Ending:
    """Run one case.

    Args:
      verb: its verb.
      case: the case.
      place: an empty directory for it.
      is_fresh: whether to start a new interpreter, as a user does, instead of a fork of this one.
    """
    for name in ("case", "home", "tmp"):
        (place / name).mkdir(parents=True)
    case.make_fn(place / "case")
    before = _listing(place / "case")
    began_s = time.monotonic()
    child = _start(case, place, is_fresh)
    status = _wait(child, began_s + TIME_LIMIT_S)
    seconds = time.monotonic() - began_s
    faults: dict[str, str] = {}
    if status is None:
        faults["slow"] = f"more than {TIME_LIMIT_S:g} s"
    elif status not in case.status:
        faults["wrong status"] = f"expected {case.status}, found {status}"
    if left := _end_others():
        faults["left running"] = left
    said = (place / "stderr").read_text(errors="replace")
    shown = (place / "stdout").read_text(errors="replace")
    faults |= faults_of_text(said, shown, status, case.reports)
    after = _listing(place / "case")
    changed = sorted(
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
        and not any(name == allowed or name.startswith(f"{allowed}/") for allowed in case.leaves)
    )
    # A fork ends without what a program does at its exit.
    leftovers = [
        path.name for path in (place / "tmp").iterdir() if not path.name.startswith(GENERATED)
    ]
    changed += [f"$TMPDIR/{name}" for name in leftovers]
    if changed:
        faults["files left"] = ", ".join(changed[:5])
    shutil.rmtree(place, ignore_errors=True)
    return Ending(verb, case.what, case.words, seconds, faults, said[-1500:])


def _environment(place: pathlib.Path) -> dict[str, str]:
    home = str(place / "home")
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("XDG_")},
        "HOME": home,
        "XDG_CACHE_HOME": f"{home}/.cache",
        "TMPDIR": str(place / "tmp"),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _limit() -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _start(case: Case, place: pathlib.Path, is_fresh: bool) -> int:
    """Start a case in a new interpreter, or in a fork of this one; return the process's number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _limit()
        os.chdir(place / "case")
        for number, name in enumerate((os.devnull, f"{place}/stdout", f"{place}/stderr")):
            flags = os.O_RDWR if number == 0 else os.O_WRONLY | os.O_CREAT
            os.dup2(os.open(name, flags, 0o600), number)
        environment = {**_environment(place), "PYTHONPATH": str(_ROOT), **case.environment}
        if is_fresh:
            command = [sys.executable, "-m", PROGRAM, *case.words]
            os.execve(sys.executable, command, environment)
        os.environ.clear()
        os.environ.update(environment)
        import tempfile

        tempfile.tempdir = None
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
            mode = "r" if number == 0 else "w"
            # They may have buffered what the parent wrote, or be a test's own.
            fresh = os.fdopen(number, mode, closefd=False, errors=stream.errors)
            setattr(sys, ("stdin", "stdout", "stderr")[number], fresh)
        sys.argv = ["tfrl", *case.words]
        runpy.run_module(PROGRAM, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, until_s: float) -> int | None:
    """Return a child's exit status (minus the signal that ended it); None if it had to be ended."""
    pause_s = 0.001
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause_s)
        pause_s = min(0.05, 2 * pause_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _end_others() -> str:
    """End the processes that the case left, which are this process's now; return what they are."""
    names = []
    until_s = time.monotonic() + 2.0
    while children := _children():
        for pid in children:
            ended, _ = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() > until_s:
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                names.append(command.replace(b"\0", b" ").decode(errors="replace")[:80])
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        time.sleep(0.01)
    return "; ".join(names)


def _children() -> list[int]:
    return [
        int(pid)
        for task in pathlib.Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]


def faults_of_text(
    said: str, shown: str, status: int | None, reports: bool = False
) -> dict[str, str]:
    """Return what is wrong with what a case wrote to stderr and stdout.

    One line is the program's own and says what is wrong: it begins with `tfrl: ` or
    `tfrl VERB: error: `. It is the last one, unless the usage, or a list of what exists, follows.
    """
    faults: dict[str, str] = {}
    if status == 0 and "Traceback (" not in said:
        return faults
    lines = [line for line in re.split(r"[\r\n]+", said) if line.strip()]
    own = [line for line in lines if _OWN_LINE.match(line)]
    if "Traceback (" in said:
        faults["tracebacks"] = lines[-1][:200]
    elif reports:
        if not shown.strip():
            faults["stdout"] = "nothing, where a report should be"
    elif len(own) != 1:
        faults["not one line"] = f"{len(own)} lines begin with tfrl: {lines[-1:]}"
    elif status != 2 and lines[-1] != own[0]:
        faults["not one line"] = f"found after it: {lines[-1][:200]}"
    if shown.strip():
        try:
            json.loads(shown)
        except ValueError:
            faults["stdout"] = shown[:100]
    return faults


def _listing(directory: pathlib.Path) -> dict[str, str]:
    """Return what is in a directory: kind and content of each entry, by its relative name."""
    entries = {}
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            path = pathlib.Path(parent, name)
            about = path.lstat()
            content = ""
            if stat.S_ISLNK(about.st_mode):
                content = str(path.readlink())
            elif stat.S_ISREG(about.st_mode) and about.st_size < 1 << 28:
                content = files.sha256(path)
            entries[str(path.relative_to(directory))] = f"{stat.S_IFMT(about.st_mode)} {content}"
    return entries
