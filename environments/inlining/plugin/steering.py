"""Steer the clangs of somebody else's build, by environment variables alone.

Every stock clang edits its own command line by `CCC_OVERRIDE_OPTIONS`. So a configured tree needs
no new configuration, and it does not matter by which path it calls its compiler. What is added
names a directory of configuration files (configuration.py). These load a library which any clang
can load (steer.c); it hands over to the plugin for the LLVM that it finds itself in, or does
nothing. Other programs ignore the variable.

Caches of objects between a build and its compiler (ccache, sccache, Go's) know nothing of the
plugin. Each would hand out an object that another policy decided, so each is told of the policy, or
gets a place of its own.
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

from environments import machine
from environments.caches.table import PLUGINS
from environments.errors import UserError
from environments.inlining.plugin.building import build_plugin, build_steering, unwritable
from environments.inlining.plugin.configuration import LIBRARY, configuration_texts, read_defaults
from environments.inlining.plugin.source import PolicySource
from environments.inlining.plugin.toolchain import MINIMUM_VERSION, Toolchain

COMPILE_ANEW = {"CCACHE_RECACHE": "1", "SCCACHE_RECACHE": "1"}
"""Environment variables by which caches keep objects and hand out none."""

_LOG = "TFRL_INLINING_LOG"
_CONFIG = "TFRL_INLINING_CONFIG"
_MARGIN = "TFRL_INLINING_MARGIN"
_OPTIONS = "CCC_OVERRIDE_OPTIONS"
_NO_PLUGIN = "no plugin was built for this clang"  # as steer.c says it
_TIMEOUT_S = 60.0
_CACHE_TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True)
class Compile:
    """What a clang told about one compile.

    Attributes:
      source: the file that it compiled, as its command line named it.
      reason: why the policy did not decide; "" if it did.
      decisions: call sites that the policy decided.
      departures: how many of them LLVM itself would have decided otherwise.
      policy_us: time that the derived features and the policy took, in microseconds.
      margin: the margin that the policy decided by, in 2^-24 of a logit.
    """

    source: str
    reason: str
    decisions: int = 0
    departures: int = 0
    policy_us: float = 0.0
    margin: int = 0


@dataclasses.dataclass(frozen=True)
class Steering:
    """How to start a command so that its clangs are steered.

    Attributes:
      environment: variables to add to the command's, or to put in their place.
      log: file in which clangs tell what they did.
      failures: why some of the clangs are not steered.
      excuses: why there is no plugin for a version of LLVM, by its major number.
    """

    environment: Mapping[str, str]
    log: pathlib.Path
    failures: tuple[str, ...] = ()
    excuses: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def compiles(self) -> list[Compile]:
        """Return what the clangs have told so far."""
        return [self._compile(line) for line in self._lines() if "steered" in line]

    def why_no_log(self) -> str:
        """Return why clangs cannot tell what they did; "" if they can."""
        try:
            with self.log.open("ab") as file:
                file.write(b"\n" * 4096)
        except OSError as error:
            return f"what was steered is not known: {self.log} cannot be written ({error.strerror})"
        return ""

    def clean_fragments(self) -> None:
        """Blank our options in what clangs wrote for -MJ, where they could not do so themselves."""
        place = self.environment[_CONFIG]
        words = (f'"--config-user-dir={place}", ', f'"-fpass-plugin={place}/{LIBRARY}", ')
        for line in self._lines():
            with contextlib.suppress(OSError, KeyError, TypeError):
                path = pathlib.Path(line["fragment"])
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
                blank = text
                for word in words:
                    blank = blank.replace(word, " " * len(word))
                if blank != text:
                    path.write_text(blank, encoding="utf-8", errors="surrogateescape")

    def _lines(self) -> list[dict]:
        if not self.log.exists():
            return []
        lines = []
        for text in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            # A full disk may leave half a line.
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
        return [line for line in lines if isinstance(line, dict)]

    def _compile(self, line: Mapping) -> Compile:
        reason = "" if line["steered"] else str(line.get("reason", ""))
        llvm = int(line.get("llvm", 0))
        if reason == _NO_PLUGIN:
            old = f"clang {llvm} is older than {MINIMUM_VERSION}, the first that is steered"
            is_old = 0 < llvm < MINIMUM_VERSION
            reason = old if is_old else self.excuses.get(llvm, reason)
        return Compile(
            source=str(line.get("source") or f"a file compiled by clang {llvm}"),
            reason=reason,
            decisions=int(line.get("decisions", 0)),
            departures=int(line.get("departures", 0)),
            policy_us=int(line.get("policy_ns", 0)) / 1e3,
            margin=int(line.get("margin", 0)),
        )


@contextlib.contextmanager
def steer(
    toolchains: Sequence[Toolchain],
    policy: PolicySource,
    clangs: Sequence[str] = (),
    excuses: Mapping[int, str] | None = None,
    margin: int | None = None,
) -> Iterator[Steering]:
    """Prepare plugins for some clangs of different versions.

    Args:
      toolchains: one for each version, at least one.
      policy: what decides.
      clangs: all clangs that the command may call, also those that no plugin is for; () for those
        of the toolchains.
      excuses: why a version of LLVM has no toolchain, by its major number.
      margin: what takes the place of the policy's own, in 2^-24 of a logit; None for nothing.

    Yields:
      How to start a command; valid inside the context.

    Raises:
      UserError: no plugin can be built, or no clang takes it.
    """
    excuses = dict(excuses or {})
    libraries: dict[str, pathlib.Path] = {}
    for toolchain in toolchains:
        try:
            for path in (build_plugin(toolchain, policy), build_steering(toolchain)):
                libraries.setdefault(path.name, path)
        except UserError as error:
            excuses[toolchain.major] = str(error)
    if not libraries:
        raise UserError("; ".join(excuses.values()))
    failures = [f"clang {major} is not steered: {excuse}" for major, excuse in excuses.items()]
    names = clangs or [toolchain.clang for toolchain in toolchains]
    with _private_directory() as private:
        place, directory, refusals = _place(libraries, names, private)
        log = private / "log"
        number = "" if margin is None else str(margin)
        environment = {**_loading(place, log), **cache_variables(directory, number)}
        environment[_MARGIN] = number
        yield Steering(environment, log, (*failures, *refusals), excuses)


def _place(
    libraries: Mapping[str, pathlib.Path], clangs: Sequence[str], private: pathlib.Path
) -> tuple[pathlib.Path, pathlib.Path, list[str]]:
    """Put libraries and configuration files where clangs find them, so that no clang fails.

    Returns:
      The directory as clangs are told of it, itself, and why some clangs will load nothing.
    """
    defaults = {clang: read_defaults(clang) for clang in clangs}
    content = {name: path.read_bytes() for name, path in libraries.items()}
    refusing: set[str] = set()
    while True:
        texts, failures = configuration_texts(defaults, refusing)
        directory = _gather({**content, **{name: text.encode() for name, text in texts.items()}})
        place = directory
        if re.search(r"\s", os.fspath(directory)):
            # Clang splits the variable at spaces.
            place = private / "plugins"
            place.unlink(missing_ok=True)
            place.symlink_to(directory)
        environment = _loading(place, private / "probe")
        refusals = {clang for clang in clangs if _refuses(clang, environment)} - refusing
        if not refusals:
            break
        refusing |= refusals
    if not texts:
        raise UserError("; ".join(failures))
    return place, directory, failures


@contextlib.contextmanager
def _private_directory() -> Iterator[pathlib.Path]:
    """Make a directory for what clangs write, if possible at a path without spaces."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]
    writable = [place for place in places if os.access(place, os.W_OK | os.X_OK)]
    straight = [place for place in writable if not re.search(r"\s", place)]
    try:
        directory = tempfile.TemporaryDirectory(
            prefix="tfrl-build-", dir=next(iter([*straight, *writable]), None)
        )
    except OSError as error:
        raise UserError(
            f"plugin: expected to make a temporary directory, found: {error}; set TMPDIR to a "
            "place that can be written"
        ) from error
    with directory as name:
        yield pathlib.Path(name)


def _gather(files: Mapping[str, bytes]) -> pathlib.Path:
    # Its name depends on what is in it alone, because a compiler cache may have it in its keys.
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name} {len(data)} ".encode() + data)
    name = f"set-{digest.hexdigest()[:32]}"
    target = PLUGINS.path / name
    try:
        PLUGINS.entry(name)
        for file, data in files.items():
            path = target / file
            if path.is_file() and path.read_bytes() == data:
                continue
            # A clang of another build may have the file open, so it is replaced, not written to.
            with tempfile.TemporaryDirectory(dir=target, prefix=".") as scratch:
                fresh = pathlib.Path(scratch) / file
                fresh.write_bytes(data)
                fresh.replace(path)
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _loading(place: pathlib.Path, log: pathlib.Path) -> dict[str, str]:
    # "#" keeps clang from telling about the edit. "^" adds in front: behind "--" there are files.
    edits = [os.environ.get(_OPTIONS) or "#", f"^--config-user-dir={place}"]
    return {_OPTIONS: " ".join(edits), _LOG: os.fspath(log), _CONFIG: os.fspath(place)}


def _refuses(clang: str, environment: Mapping[str, str]) -> bool:
    """Return whether a clang fails only because of the plugin: some are built without plugins."""
    with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as scratch:
        command = [clang, "-x", "c", "-c", os.devnull, "-o", f"{scratch}/probe.o"]
        steered = _succeeds(command, {**os.environ, **environment})
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


def cache_variables(directory: pathlib.Path, margin: str) -> dict[str, str]:
    """Return environment variables that keep the objects of one policy apart.

    Args:
      directory: what clangs load. Its name depends on all that is in it.
      margin: what takes the place of the policy's own margin; "" for nothing.
    """
    digest = "-".join(filter(None, [directory.name, margin]))
    files = sorted(os.fspath(path) for path in directory.iterdir() if path.name[0] != ".")
    extra = [_ccache_setting("extra_files_to_hash", "CCACHE_EXTRAFILES"), *files]
    space = [_ccache_setting("namespace", "CCACHE_NAMESPACE"), digest]
    buster = [os.environ.get("SCCACHE_C_CUSTOM_CACHE_BUSTER", ""), digest]
    return {
        # A build may set either of these itself.
        "CCACHE_EXTRAFILES": os.pathsep.join(filter(None, extra)),
        "CCACHE_NAMESPACE": "-".join(filter(None, space)),
        "SCCACHE_C_CUSTOM_CACHE_BUSTER": "-".join(filter(None, buster)),
        # Go's cache has no key of ours.
        "GOCACHE": f"{_go_cache()}-{digest}",
    }


def _ccache_setting(key: str, variable: str) -> str:
    """Return a setting of ccache, from the environment or from the user's own files."""
    setting = _answer("ccache", "--get-config", key)
    return os.environ.get(variable, "") if setting is None else setting


def _go_cache() -> str:
    """Return where Go keeps objects; it need not be on PATH now to be called by the build."""
    place = _answer("go", "env", "GOCACHE") or os.environ.get("GOCACHE")
    return place or str(machine.cache_home() / "go-build")


def _answer(*command: str) -> str | None:
    """Return what a program prints; None if it is not there or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CACHE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else os.fsdecode(done.stdout).strip()
