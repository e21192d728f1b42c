"""Build a plugin on first use, and keep it in the cache directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

from environments.caches.directories import acquire
from environments.caches.table import PLUGINS
from environments.errors import UserError
from environments.inlining.plugin.source import PolicySource
from environments.inlining.plugin.toolchain import Toolchain

_DIRECTORY = pathlib.Path(__file__).parent
_ADVISOR = "advisor.cpp"
# What a policy may include beside policy.h, and the advisor does not.
_MODEL = "model.h"
_STEERING = "steer.c"
_OPTIONS = ("-O3", "-fPIC", "-fvisibility=hidden", "-w")
_CPP_OPTIONS = (
    "-std=c++17",
    # LLVM is built either with or without type information; without fits both.
    "-fno-rtti",
    "-fno-exceptions",
)
_TIMEOUT_S = 300.0
# A file system that takes no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MESSAGE_CHARACTERS = 300


def build_plugin(toolchain: Toolchain, policy: PolicySource) -> pathlib.Path:
    """Return the plugin that puts a policy into a clang; build it if the cache does not have it.

    A plugin is kept by the digest of all that it is made from, at least until this process ends. It
    appears in the cache complete or not at all, and of several processes that need it at once one
    builds it.

    Raises:
      UserError: the compiler fails, or the plugin cannot be written.
    """
    command = [toolchain.compiler, *_CPP_OPTIONS, *_OPTIONS]
    texts = {**_texts((_MODEL, "policy.h")), "policy.cpp": policy}
    options = ["-shared", "-I.", "policy.cpp", os.fspath(_build_advisor(toolchain))]
    return _build(f"inliner-{toolchain.major}.so", texts, [*command, *options])


def _build_advisor(toolchain: Toolchain) -> pathlib.Path:
    """Return the part that is the same for all policies, as an object; LLVM's headers take long."""
    define = f"-DTFRL_HIDES_CALLEE_BLOCKS={int(toolchain.facts.hides_callee_blocks)}"
    command = [toolchain.compiler, *_CPP_OPTIONS, *_OPTIONS, define]
    command += ["-isystem", os.fspath(toolchain.include), "-I.", "-c", _ADVISOR]
    headers = {path.name for path in _DIRECTORY.glob("*.h")} - {_MODEL}
    name = f"advisor-{toolchain.major}.o"
    return _build(name, _texts((_ADVISOR, *headers)), command, toolchain.facts.banner)


def build_steering(toolchain: Toolchain) -> pathlib.Path:
    """Return the library that picks the right plugin in each clang; see steer.c.

    Raises:
      UserError: the compiler fails, or the library cannot be written.
    """
    command = [toolchain.compiler, "-x", "c", *_OPTIONS, "-shared", _STEERING, "-ldl"]
    return _build("steer.so", _texts((_STEERING,)), command)


def _texts(names: Iterable[str]) -> dict[str, str]:
    return {name: (_DIRECTORY / name).read_text(encoding="utf-8") for name in names}


def _build(
    name: str, texts: Mapping[str, str], command: Sequence[str], version: str = ""
) -> pathlib.Path:
    """Return a file of the cache; make it from `texts` by `command` if it is not there."""
    digest = hashlib.sha256()
    for part in [*command, version, *(part for pair in sorted(texts.items()) for part in pair)]:
        digest.update(f"{len(part)} {part}".encode())
    with _place(digest.hexdigest()[:32]) as directory:
        target = directory / name
        if not _is_whole(target):
            _compile(target, texts, command)
        return target


@contextlib.contextmanager
def _place(digest: str) -> Iterator[pathlib.Path]:
    directory = PLUGINS.path / digest
    try:
        PLUGINS.entry(digest)
        with contextlib.ExitStack() as stack:
            if os.access(directory, os.W_OK):
                lock = stack.enter_context((directory / "lock").open("w"))
                # Two that build at once do no harm, so one that was stopped is not waited for.
                acquire(lock, fcntl.LOCK_EX, _TIMEOUT_S)
            yield directory
    except OSError as error:
        raise unwritable(directory, error) from error


def unwritable(directory: pathlib.Path, error: OSError) -> UserError:
    """Return the message for a place in the cache where nothing can be written."""
    remedy = "set XDG_CACHE_HOME to a place that can be written"
    if error.errno in _FULL:
        remedy = f"free some space, or {remedy}"
    return UserError(f"plugin: expected to write it into {directory}, found: {error}; {remedy}")


def _is_whole(target: pathlib.Path) -> bool:
    """Return whether a file is there as it was built: half a library could crash a compiler."""
    try:
        noted = _note(target).read_text(encoding="ascii", errors="replace")
        return noted == hashlib.sha256(target.read_bytes()).hexdigest()
    except FileNotFoundError:
        return False


def _note(target: pathlib.Path) -> pathlib.Path:
    return target.with_suffix(".sha256")


def _compile(target: pathlib.Path, texts: Mapping[str, str], command: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
        for name, text in texts.items():
            (pathlib.Path(scratch) / name).write_text(text, encoding="utf-8")
        fresh = pathlib.Path(scratch) / target.name
        # The steered build's own environment must not reach this compiler.
        environment = {k: v for k, v in os.environ.items() if k != "CCC_OVERRIDE_OPTIONS"}
        environment["LC_ALL"] = "C"
        try:
            done = subprocess.run(
                [*command, "-o", target.name],
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise UserError(
                f"plugin: expected it built within {_TIMEOUT_S:g} s, found {command[0]} still busy"
            ) from error
        if done.returncode:
            for number in _FULL:
                if os.strerror(number) in done.stderr:
                    raise OSError(number, os.strerror(number))
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            message = (lines or done.stderr.splitlines() or ["no message"])[0]
            raise UserError(
                f"plugin: expected {command[0]} to build it, found: "
                f"{message.strip()[:_MESSAGE_CHARACTERS]}; install another C++ compiler"
            )
        note = _note(fresh)
        note.write_text(hashlib.sha256(fresh.read_bytes()).hexdigest(), encoding="ascii")
        fresh.rename(target)
        note.rename(_note(target))
