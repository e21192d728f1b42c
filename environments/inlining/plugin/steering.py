"""Steer the clangs of somebody else's build, by environment variables alone.

Every stock clang edits its own command line by `CCC_OVERRIDE_OPTIONS`. So a configured tree needs
no new configuration, and it does not matter by which path it calls its compiler. The option that is
added loads a library which any clang can load (steer.c); it hands over to the plugin for the LLVM
that it finds itself in, or does nothing. Other programs ignore the variable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from environments.caches.table import PLUGINS
from environments.errors import UserError
from environments.inlining.plugin.building import build_plugin, build_steering
from environments.inlining.plugin.source import PolicySource
from environments.inlining.plugin.toolchain import Toolchain

_LOG = "TFRL_INLINING_LOG"
_OPTIONS = "CCC_OVERRIDE_OPTIONS"
_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Compile:
    """What a clang told about one compile.

    Attributes:
      source: the file that it compiled, as its command line named it.
      reason: why the policy did not decide; "" if it did.
      decisions: call sites that the policy decided.
      departures: how many of them LLVM itself would have decided otherwise.
      policy_us: time that the derived features and the policy took, in microseconds.
    """

    source: str
    reason: str
    decisions: int = 0
    departures: int = 0
    policy_us: float = 0.0


@dataclasses.dataclass(frozen=True)
class Steering:
    """How to start a command so that its clangs are steered.

    Attributes:
      environment: variables to add to the command's, or to put in their place.
      log: file in which clangs tell what they did.
      failures: why there is no plugin for some of the clangs.
    """

    environment: Mapping[str, str]
    log: pathlib.Path
    failures: tuple[str, ...] = ()

    def compiles(self) -> list[Compile]:
        """Return what the clangs have told so far."""
        if not self.log.exists():
            return []
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            # A full disk may leave half a line.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found.append(_read(json.loads(line)))
        return found


def _read(told: dict) -> Compile:
    return Compile(
        source=str(told["source"]) or f"a file compiled by clang {told['llvm']}",
        reason="" if told["steered"] else str(told["reason"]),
        decisions=int(told.get("decisions", 0)),
        departures=int(told.get("departures", 0)),
        policy_us=int(told.get("policy_ns", 0)) / 1e3,
    )


@contextlib.contextmanager
def steer(toolchains: Sequence[Toolchain], policy: PolicySource) -> Iterator[Steering]:
    """Prepare plugins for some clangs of different versions.

    Args:
      toolchains: one for each version, at least one.
      policy: what decides.

    Yields:
      How to start a command; valid inside the context.

    Raises:
      UserError: no plugin can be built.
    """
    files: dict[str, pathlib.Path] = {}
    failures = []
    for toolchain in toolchains:
        try:
            for path in (build_plugin(toolchain, policy), build_steering(toolchain)):
                files.setdefault(path.name, path)
        except UserError as error:
            failures.append(f"clang {toolchain.major} is not steered: {error}")
    if not files:
        raise UserError("; ".join(failures))
    directory = _gather(list(files.values()))
    with tempfile.TemporaryDirectory(prefix="tfrl-build-") as private:
        log = pathlib.Path(private) / "log"
        place = directory
        if re.search(r"\s", os.fspath(directory)):
            # Clang splits the variable at spaces.
            place = pathlib.Path(private) / "plugins"
            place.symlink_to(directory)
        yield Steering(_environment(place, directory, log), log, tuple(failures))


def _gather(files: Sequence[pathlib.Path]) -> pathlib.Path:
    """Return a directory that holds the plugins and the library that picks one.

    Its name depends on what is in it alone, because a compiler cache may have it in its keys.
    """
    content = [(path.name, path.read_bytes()) for path in sorted(files, key=lambda one: one.name)]
    digest = hashlib.sha256()
    for name, data in content:
        digest.update(f"{name} {len(data)} ".encode() + data)
    name = f"set-{digest.hexdigest()[:32]}"
    target = PLUGINS.path / name
    try:
        PLUGINS.directories().entry(name)
        for file, data in content:
            path = target / file
            if path.is_file() and path.read_bytes() == data:
                continue
            # A clang of another build may have the file open, so it is replaced, not written to.
            with tempfile.NamedTemporaryFile(dir=target, prefix=".", delete=False) as fresh:
                fresh.write(data)
            pathlib.Path(fresh.name).replace(path)
    except OSError as error:
        raise UserError(
            f"plugin: expected to write it into {target}, found: {error}; free some space, or set "
            "XDG_CACHE_HOME to a place that can be written"
        ) from error
    return target


def _environment(place: pathlib.Path, directory: pathlib.Path, log: pathlib.Path) -> dict[str, str]:
    present = os.environ.get(_OPTIONS, "")
    # "#" keeps clang from telling about the edit. "^" adds in front: behind "--" there are files.
    edits = [present or "#", f"^-fpass-plugin={place / 'steer.so'}"]
    files = sorted(os.fspath(path) for path in directory.glob("*.so"))
    extra = [os.environ.get("CCACHE_EXTRAFILES", ""), *files]
    buster = [os.environ.get("SCCACHE_C_CUSTOM_CACHE_BUSTER", ""), directory.name]
    return {
        _OPTIONS: " ".join(edits),
        _LOG: os.fspath(log),
        # Neither cache knows of the plugin, and would take objects of another policy for these.
        "CCACHE_EXTRAFILES": os.pathsep.join(filter(None, extra)),
        "SCCACHE_C_CUSTOM_CACHE_BUSTER": "-".join(filter(None, buster)),
    }


def refuses(clang: str, steering: Steering) -> bool:
    """Return whether a clang fails only because of the plugin: some are built without plugins."""
    with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as scratch:
        command = [clang, "-x", "c", "-c", os.devnull, "-o", f"{scratch}/probe.o"]
        environment = {**os.environ, **steering.environment, _LOG: f"{scratch}/log"}
        steered = _succeeds(command, environment)
        return not steered and _succeeds(command, dict(os.environ))


def _succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
