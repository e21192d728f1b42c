"""Somebody else's build with a policy in its clangs: `tfrl build`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from environments import files
from environments.errors import UsageError, UserError
from environments.inlining.plugin.source import PolicySource
from environments.inlining.plugin.steering import Compile, Steering, refuses, steer
from environments.inlining.plugin.toolchain import Toolchain, find_toolchain
from tfrl_systems.experiments.reporting import Reporter
from tfrl_systems.experiments.systems.inlining.exporting import policy_source
from tfrl_systems.experiments.systems.inlining.trees_on_disk import Tree, look

_ON_PATH = ("cc", "c++", "clang", "clang++", *(f"clang-{number}" for number in range(19, 31)))
_CACHED_COMPILER = re.compile(r"^CMAKE_(?:C|CXX)_COMPILER:[A-Z]+=(.+)$", re.MULTILINE)
_VERSION = re.compile(r"clang version (\d{1,6})")
_TIMEOUT_S = 30.0
_STDERR = 2


@dataclasses.dataclass(frozen=True)
class Build:
    """What to build, and how.

    Attributes:
      command: the command and its arguments.
      policy: a policy's directory or name.
      compilers: the clangs to steer; () for those that the tree and PATH name.
      compared: a plain build of the same tree; None for none.
      quiet: whether the command's output goes to stderr.
    """

    command: Sequence[str]
    policy: str
    compilers: Sequence[str] = ()
    compared: pathlib.Path | None = None
    quiet: bool = False


def build(asked: Build, reporter: Reporter) -> dict[str, Any]:
    """Run a build with its clangs steered; return what `tfrl build --json` prints.

    Raises:
      UserError: there is no such policy or command. A plugin that cannot be built is no error: the
        command then runs as it would alone, and the reporter says why.
    """
    if not asked.command or shutil.which(asked.command[0]) is None:
        raise UsageError(
            f"build: expected a command after --, found "
            f"{asked.command[0] if asked.command else 'none'}; for instance: "
            "tfrl build --policy DIR -- cmake --build b"
        )
    if asked.compared is not None and not asked.compared.is_dir():
        raise UsageError(
            f"--compare: expected the directory of a plain build, found {asked.compared}, which is "
            "none; build the same tree there without tfrl"
        )
    source = policy_source(asked.policy)
    tree = Tree.of(asked.command)
    with contextlib.ExitStack() as stack:
        steering, excuse = _prepare(asked, source, tree, stack)
        if steering is None:
            reporter.say(f"{excuse}; the command runs as it would alone")
        else:
            for failure in steering.failures:
                reporter.say(failure)
        began_ns = _now_ns()
        status = _run(asked, steering)
        compiles = steering.compiles() if steering is not None else []
    plain = [{"file": one.source, "reason": one.reason} for one in compiles if one.reason]
    others, images = look(tree, began_ns, asked.compared)
    return {
        "status": status,
        "compiles": len(compiles) + len(others),
        "steered": sum(not one.reason for one in compiles),
        "plain": plain + others,
        **_counts(compiles),
        "reason": excuse,
        "images": images,
    }


def _counts(compiles: Sequence[Compile]) -> dict[str, Any]:
    return {
        "decisions": sum(one.decisions for one in compiles),
        "departures": sum(one.departures for one in compiles),
        "policy_seconds": sum(one.policy_us for one in compiles) / 1e6,
    }


def _prepare(
    asked: Build, source: PolicySource, tree: Tree, stack: contextlib.ExitStack
) -> tuple[Steering | None, str]:
    """Return how to steer; None and the reason if nothing can be steered."""
    clangs = _find_clangs(asked.compilers or _candidates(tree))
    toolchains: dict[int, Toolchain] = {}
    excuses = []
    for clang, major in clangs.items():
        if major in toolchains:
            continue
        try:
            toolchains[major] = find_toolchain(clang)
        except UserError as error:
            excuses.append(str(error))
    if not toolchains:
        if asked.compilers and not clangs:
            return None, f"expected a clang, found none called {', '.join(asked.compilers)}"
        return None, "; ".join(dict.fromkeys(excuses)) or "no clang of LLVM 19 or newer was found"
    try:
        steering = stack.enter_context(steer(list(toolchains.values()), source))
    except UserError as error:
        return None, str(error)
    for clang in clangs:
        if refuses(clang, steering):
            return None, f"{clang} takes no plugins"
    return steering, ""


def _candidates(tree: Tree) -> list[str]:
    """Return compilers that the build may use: the environment's, the tree's and those on PATH."""
    named = [os.environ.get(name, "").split(" ")[0] for name in ("CC", "CXX")]
    for root in tree.roots:
        for path in (root / "CMakeCache.txt", *root.glob("*/CMakeCache.txt")):
            with contextlib.suppress(OSError):
                named += _CACHED_COMPILER.findall(files.read_bytes(path).decode(errors="replace"))
    return [*filter(None, named), *_ON_PATH]


def _find_clangs(names: Sequence[str]) -> dict[str, int]:
    """Return the major version of each name that is a clang; each program once."""
    found: dict[str, int] = {}
    seen = set()
    for name in names:
        path = shutil.which(name)
        if path is None or (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            shown = subprocess.run(
                [path, "--version"], capture_output=True, timeout=_TIMEOUT_S
            ).stdout.decode(errors="replace")
            if match := _VERSION.search(shown):
                found[path] = int(match[1])
    return found


def _now_ns() -> int:
    """Return the time as file systems count it, which may be coarser than the clock."""
    with tempfile.NamedTemporaryFile(prefix="tfrl-") as file:
        return pathlib.Path(file.name).stat().st_mtime_ns


def _run(asked: Build, steering: Steering | None) -> int:
    """Run the command to its end; return its exit status, as a shell would."""
    environment = {**os.environ, **(steering.environment if steering is not None else {})}
    output = _STDERR if asked.quiet else None
    try:
        process = subprocess.Popen(list(asked.command), env=environment, stdout=output)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"build: expected {asked.command[0]} to start, found: {error}; name a program"
        ) from error
    with _passing_on(process):
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen) -> Iterator[None]:
    """Leave it to the command to end when it is asked to, so that its compilers can clean up.

    A terminal interrupts the command as well. An exception here would come between the command's
    end and its status, and could lose that.
    """
    handlers: dict[signal.Signals, Callable[[int, Any], None]] = {
        signal.SIGTERM: lambda number, _: process.send_signal(number),
        signal.SIGINT: lambda *_: None,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def to_text(found: Mapping[str, Any]) -> str:
    """Return the end of a build for a reader."""
    from tfrl_systems.experiments.reporting import format_table, percent

    lines = [f"{found['steered']} of {found['compiles']} compiles steered"]
    if found["decisions"]:
        lines[0] += (
            f": {found['decisions']:,} call sites decided, {found['departures']:,} of them "
            "otherwise than by LLVM"
        )
    reasons: dict[str, list[str]] = {}
    for one in found["plain"]:
        reasons.setdefault(one["reason"], []).append(one["file"])
    lines += [f"  {len(files)} not: {reason} ({files[0]})" for reason, files in reasons.items()]
    if found["reason"]:
        lines.append(f"  none: {found['reason']}")
    elif not found["compiles"]:
        lines.append("  nothing was compiled: to build all anew, clean the tree first")
    rows = []
    parts = ("text", "unwind", "rodata", "file")
    for one in found["images"]:
        cells = [f"{one[f'{part}_bytes']:,}" for part in parts]
        if "default_text_bytes" in one:
            pairs = [(one[f"{part}_bytes"], one[f"default_{part}_bytes"]) for part in parts]
            cells += [percent(*pair) for pair in pairs]
        rows.append([one["path"], *cells, *[""] * (8 - len(cells))])
    if rows:
        header = ["image", *parts, *["change"] * len(parts)]
        lines.append(format_table(header, rows))
    return "\n".join(lines)
