"""Somebody else's build with a policy in its clangs: `tfrl build`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from environments.errors import UsageError, UserError
from environments.inlining.plugin.source import PolicySource, heuristic_source, source_of
from environments.inlining.plugin.steering import COMPILE_ANEW, Compile, Steering, steer
from environments.inlining.plugin.toolchain import Toolchain, find_toolchain
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.building import margins, tuning
from tfrl_systems.systems.inlining.building.compilers_of_tree import candidates, find_clangs
from tfrl_systems.systems.inlining.building.margins import Margin
from tfrl_systems.systems.inlining.building.trees_on_disk import (
    Made,
    directories_of,
    look,
    roots_of,
    unheard,
)
from tfrl_systems.systems.inlining.policies import load_policy

_STDERR = 2
_PLAIN = "plain LLVM decides"
_NOTHING_TO_DO = "default is LLVM's own policy and needs no plugin"
_UNHEARD = (
    "no clang told of it: it came from a compiler cache, its clang did not get this build's "
    "environment (SCons, Bazel, env -i, another user or machine), or it takes no plugins (zig, "
    "clang-cl, clang before 16)"
)
# What a terminal sends to the command, too.
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclasses.dataclass(frozen=True)
class Build:
    """What to build, and how.

    Attributes:
      command: the command and its arguments.
      policy: what decides (default: the installation's own).
      compilers: a clang to steer; may be repeated (default: those that the tree and PATH name).
      compared: a plain build of the same tree, whose images are shown beside.
      quiet: whether the command's output goes to stderr.
      tuned: build about six times, with several margins, and keep what links smallest; never
        larger than plain.
    """

    command: Sequence[str]
    policy: str = option(shipped.NAME, metavar="DIR|NAME")
    compilers: tuple[str, ...] = option((), flag="--compiler", metavar="CLANG")
    compared: pathlib.Path | None = option(None, flag="--compare", metavar="DIR")
    quiet: bool = False
    tuned: bool = option(False, flag="--tune")


def build(settings: Build, reporter: Reporter) -> dict[str, Any]:
    """Run a build with its clangs steered; return what `tfrl build --json` prints.

    Raises:
      UserError: there is no such policy or command, or the tree's tfrl.margins is damaged. A plugin
        that cannot be built is no error: the command then runs as it would alone, and the reporter
        says why.
    """
    if not settings.command or shutil.which(settings.command[0]) is None:
        raise UsageError(
            f"build: expected a command after --, found "
            f"{settings.command[0] if settings.command else 'none'}; for instance: "
            "tfrl build --policy DIR -- cmake --build b"
        )
    if settings.compared is not None and not settings.compared.is_dir():
        raise UsageError(
            f"--compare: expected the directory of a plain build, found {settings.compared}, which "
            "is none; build the same tree there without tfrl"
        )
    policy = load_policy(settings.policy)
    source = source_of(policy)

    def build_fn(margin: Margin, reporter: Reporter) -> tuning.Outcome:
        return _build_once(settings, source, margin, reporter)

    if settings.tuned:
        return tuning.tune(policy, settings.command, build_fn, reporter)
    directories = directories_of(settings.command)
    return build_fn(margins.read(directories, policy, reporter), reporter).report


def _build_once(
    settings: Build, source: PolicySource, margin: Margin, reporter: Reporter
) -> tuning.Outcome:
    """Run the command once, with a margin."""
    roots = roots_of(settings.command)
    with contextlib.ExitStack() as stack:
        steering, excuse = None, _PLAIN
        if not margin.is_plain:
            steering, excuse = _prepare(settings, source, roots, margin, stack)
        if steering is not None:
            for failure in steering.failures:
                reporter.say(failure)
        elif excuse not in (_NOTHING_TO_DO, _PLAIN):
            reporter.say(f"{excuse}; the command runs as it would alone")
        began_ns = _now_ns()
        status = _run(settings, steering)
        compiles = []
        if steering is not None:
            compiles = steering.compiles()
            steering.clean_fragments()
            excuse = steering.why_no_log()
            if lost := margins.why_lost(margin, compiles):
                reporter.say(lost)
    changes = look(roots, began_ns, settings.compared)
    plain = _plain(compiles, changes, is_heard=steering is not None and not excuse)
    steered = sum(not compile.reason for compile in compiles)
    report = {
        "status": status,
        "compiles": steered + len(plain) + (0 if steering is not None else len(changes.objects)),
        "steered": steered,
        "plain": plain,
        "decisions": sum(compile.decisions for compile in compiles),
        "departures": sum(compile.departures for compile in compiles),
        "policy_seconds": sum(compile.policy_us for compile in compiles) / 1e6,
        "reason": excuse,
        "images": changes.images,
    }
    return tuning.Outcome(compiles, changes, report)


def _plain(compiles: Sequence[Compile], changes: Made, is_heard: bool) -> list[dict[str, str]]:
    """Return what the policy did not decide, and why.

    `is_heard` says whether each clang would have told of what it compiled.
    """
    reasons = [(compile.source, compile.reason) for compile in compiles if compile.reason]
    reasons += changes.foreign.items()
    if is_heard:
        silent = unheard(changes.objects, [compile.source for compile in compiles])
        if not compiles and not changes.objects:
            silent = changes.linked
        reasons += [(path, _UNHEARD) for path in silent]
    return [{"file": file, "reason": reason} for file, reason in reasons]


def _prepare(
    settings: Build,
    source: PolicySource,
    roots: Sequence[pathlib.Path],
    margin: Margin,
    stack: contextlib.ExitStack,
) -> tuple[Steering | None, str]:
    """Return how to steer; None and the reason if nothing can be steered."""
    if source == heuristic_source("default"):
        return None, _NOTHING_TO_DO
    clangs = find_clangs(settings.compilers or candidates(roots, settings.command))
    toolchains: dict[int, Toolchain] = {}
    excuses: dict[int, str] = {}
    for clang, major in clangs.items():
        if major in toolchains:
            continue
        try:
            toolchains[major] = find_toolchain(clang)
            excuses.pop(major, None)
        except UserError as error:
            excuses.setdefault(major, str(error))
    if not toolchains:
        if settings.compilers and not clangs:
            return None, f"expected a clang, found none called {', '.join(settings.compilers)}"
        return None, "; ".join(excuses.values()) or "no clang of LLVM 19 or newer was found"
    try:
        steering = steer(list(toolchains.values()), source, list(clangs), excuses, margin.steps)
        return stack.enter_context(steering), ""
    except UserError as error:
        return None, str(error)


def _now_ns() -> int:
    """Return the time as file systems count it, which may be coarser than the clock."""
    try:
        with tempfile.NamedTemporaryFile(prefix="tfrl-") as file:
            return pathlib.Path(file.name).stat().st_mtime_ns
    except OSError:
        return time.time_ns() - 10**9


def _run(settings: Build, steering: Steering | None) -> int:
    """Run the command to its end; return its exit status, as a shell would."""
    environment = {**os.environ, **(steering.environment if steering is not None else {})}
    if settings.tuned:
        environment |= COMPILE_ANEW  # each clang is to tell which margin it got
    output = _STDERR if settings.quiet else None
    with _passing_on() as pass_on_to:
        try:
            # Open files stay open: make tells its parts through them which of them may run.
            process = subprocess.Popen(
                list(settings.command), env=environment, stdout=output, close_fds=False
            )
        except (OSError, ValueError) as error:
            raise UsageError(
                f"build: expected {settings.command[0]} to start, found: {error}; name a program"
            ) from error
        pass_on_to(process)
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _passing_on() -> Iterator[Callable[[subprocess.Popen], None]]:
    """Leave it to the command to end when it is asked to, so that its compilers can clean up.

    Begins before the command does, or a signal in between would leave it behind alone: what comes
    too early is kept for it. An exception here would come between the command's end and its status,
    and could lose that. What this process ignores, as under nohup, it goes on to ignore, like the
    command.
    """
    early: list[int] = []
    command: subprocess.Popen | None = None

    def handle(number: int, _frame: Any) -> None:
        if command is None:
            early.append(number)
        elif number in _PASSED_ON:
            command.send_signal(number)

    def pass_on_to(process: subprocess.Popen) -> None:
        nonlocal command
        command = process
        for number in early:
            process.send_signal(number)

    before = {
        number: signal.signal(number, handle)
        for number in (*_OF_TERMINAL, *_PASSED_ON)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def to_text(report: Mapping[str, Any]) -> str:
    """Return the end of a build for a reader."""
    from tfrl_systems.reporting import format_table, percent

    lines = [f"{report['steered']} of {report['compiles']} compiles steered"]
    if report["decisions"]:
        lines[0] += (
            f": {report['decisions']:,} call sites decided, {report['departures']:,} of them "
            "otherwise than by LLVM"
        )
    reasons: dict[str, list[str]] = {}
    for compile_ in report["plain"]:
        reasons.setdefault(compile_["reason"], []).append(compile_["file"])
    lines += [f"  {len(files)} not: {reason} ({files[0]})" for reason, files in reasons.items()]
    if report["reason"]:
        lines.append(f"  {'' if report['steered'] else 'none: '}{report['reason']}")
    elif not report["compiles"]:
        lines.append("  no new object was found: to build all anew, clean the tree first")
    rows = []
    parts = ("text", "unwind", "rodata", "file")
    for image in report["images"]:
        cells = [f"{image[f'{part}_bytes']:,}" for part in parts]
        if "default_text_bytes" in image:
            pairs = [(image[f"{part}_bytes"], image[f"default_{part}_bytes"]) for part in parts]
            cells += [percent(*pair) for pair in pairs]
        rows.append([image["path"], *cells, *[""] * (8 - len(cells))])
    if rows:
        header = ["image", *parts, *["change"] * len(parts)]
        lines.append(format_table(header, rows))
    if "tuning" in report:
        lines += filter(None, [tuning.to_text(report["tuning"])])
    return "\n".join(lines)
