"""Bad inputs of `tfrl build`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import EITHER, Case, all_of, at, nothing, usage, with_file
from tools.benchmarks.bad_inputs.verbs import policies, programs

_UNSTEERED = ("--compiler=/bin/true",)
"""Nothing can be steered; the command runs as it would alone."""
_PLAIN = ("build", "--policy=default", *_UNSTEERED, "--json")
_ELF = pathlib.Path("/bin/true")
_AS_ALONE: dict[str, Any] = {"status": (0,), "reports": True}


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl build`."""
    return [
        *policies.policies(
            "--policy", lambda path: ("build", f"--policy={path}", *_UNSTEERED, "--", "true"), seed,
            policies.DECISIONS,
        ),
        *_compared(seed),
        *_compilers(),
        *_commands(),
        *_trees(seed),
        *_surroundings(),
        *(
            Case(f"a policy {name}", ("build", f"--policy={name}", "--", "true"))
            for name in ("nonsense", "random", "cost<", "cost<many", "cost<99999999999", "Default")
        ),
        *usage(
            "build",
            ("nothing", ""),
            ("no policy", "-- true"),
            ("no command", "--policy default"),
            ("no command after --", "--policy default --"),
            ("no such option", "--policy default --nonsense -- true"),
            ("no policy's name", "--policy"),
            ("no compiler's name", "--policy default --compiler"),
        ),
    ]  # fmt: skip


def _compared(seed: int) -> Iterator[Case]:
    def words(path: str) -> tuple[str, ...]:
        return (*_PLAIN, f"--compare={path}", "--", "true")

    for one in damage.files("--compare", words, b"", seed, without=("a directory",)):
        yield dataclasses.replace(one, status=EITHER)


def _compilers() -> Iterator[Case]:
    command = ("build", "--policy=never", "--json")
    for what, (name, make_fn) in (programs.NOT_STARTING | programs.NO_CLANGS).items():
        words = (*command, f"--compiler={name}", "--", "true")
        yield Case(f"--compiler: {what}", words, make_fn, **_AS_ALONE)
        for variable in ("CC", "CXX"):
            if "\0" not in name:
                yield Case(
                    f"{variable}: {what}", (*command, "--", "true"), all_of(make_fn, _tools),
                    environment={"PATH": "bin", variable: name}, **_AS_ALONE,
                )  # fmt: skip


def _tools(directory: pathlib.Path) -> None:
    """Make a directory of programs in which there is no compiler."""
    (directory / "bin").mkdir()
    for name in ("true", "sh", "cp"):
        (directory / "bin" / name).symlink_to(f"/bin/{name}")


def _commands() -> Iterator[Case]:
    for what, (name, make_fn) in programs.NOT_STARTING.items():
        words = (*_PLAIN, "--", name)
        # What has no format that the system knows is given to a shell by some, and fails there.
        yield Case(f"COMMAND: {what}", words, make_fn, (2,))
    yield Case(
        "COMMAND: an argument with a zero byte", (*_PLAIN, "--", "true", "a\0b"), status=(2,)
    )
    ends = {
        "fails": ("exit 3", 3),
        "is killed": ("kill -KILL $$", 137),
        "is unknown": ("no-such-program", 127),
    }
    for what, (text, status) in ends.items():
        yield Case(
            f"COMMAND: one that {what}", (*_PLAIN, "--", "sh", "-c", text), status=(status,),
            reports=True,
        )  # fmt: skip


def _trees(seed: int) -> Iterator[Case]:
    """Yield builds of a tree in which something is wrong, or that write something wrong."""
    for what, make_fn in damage.in_place("CMakeCache.txt", _CMAKE_CACHE, seed):
        yield Case(
            what, ("build", "--policy=never", "--json", "--", "true"),
            all_of(at("CMakeCache.txt", make_fn), _tools), environment={"PATH": "bin"}, **_AS_ALONE,
        )  # fmt: skip
    copy = (*_PLAIN, "--", "cp", "--sparse=always", "given", "given.out")
    for what, make_fn in damage.in_place("an image", _ELF.read_bytes(), seed):
        words = (*_PLAIN, "--", "sh", "-c", "cp given given.out; exit 0")
        if "pipe" not in what and "sparse" not in what:  # cp would wait, or copy for hours
            yield Case(what, words, at("given", make_fn), leaves=("given.out",), **_AS_ALONE)
    for what, content in _images(seed):
        make_fn = with_file("given", content)
        yield Case(f"an image with {what}", copy, make_fn, leaves=("given.out",), **_AS_ALONE)
    words = (*_PLAIN, "--", "sh", "-c", "printf '\\177ELF' > huge; truncate -s 4T huge")
    yield Case("an image of 4 TiB", words, nothing, leaves=("huge",), **_AS_ALONE)
    words = (*_PLAIN, "--", "sh", "-c", "ln -s . d; ln -s .. d2; mkfifo p")
    yield Case("a tree in circles", words, nothing, leaves=("d", "d2", "p"), **_AS_ALONE)


_CMAKE_CACHE = b"CMAKE_C_COMPILER:FILEPATH=/no/such/compiler\nCMAKE_CXX_COMPILER:STRING=c++\n"


def _images(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield ELF files that are damaged where it matters, in their headers."""
    good = _ELF.read_bytes()
    sections = int.from_bytes(good[40:48], "little")
    for number in range(12):
        yield (
            f"flipped bits in its header {number}",
            (good[:16] + damage.flipped(good[16:64], seed, number) + good[64:]),
        )
        yield (
            f"flipped bits in its sections {number}",
            (good[:sections] + damage.flipped(good[sections:], seed, number)),
        )


def _surroundings() -> Iterator[Case]:
    """Yield builds where the system lacks what a build needs."""
    clang = ("build", "--policy=never", "--json", "--", "true")
    fake = all_of(programs.script("echo clang version 22.1.0", "bin2/clang"), _tools)
    for what, environment in {
        "a PATH of nothing": {"PATH": ""},
        "a PATH that is missing": {"PATH": "/no/such/directory:/bin"},
        "a clang that only says so": {"PATH": "bin2:bin"},
        "a cache that is a file": {"PATH": "bin2:bin", "XDG_CACHE_HOME": "bin/true"},
        "a cache that is no path": {"PATH": "bin2:bin", "XDG_CACHE_HOME": "/proc/nowhere"},
        "no home": {"PATH": "bin2:bin", "HOME": ""},
    }.items():
        is_bare = environment["PATH"] == ""
        words = (*clang[:-1], "/bin/true") if is_bare else clang
        yield Case(f"surroundings: {what}", words, fake, environment=environment, **_AS_ALONE)
    for what, place in {"is missing": "nowhere", "is a file": "file", "is full": "/proc"}.items():
        yield Case(
            f"surroundings: a TMPDIR that {what}", clang, all_of(fake, with_file("file", b"")),
            status=(0, 1), environment={"PATH": "bin", "TMPDIR": place},
        )  # fmt: skip
