"""What tests need of the machine. A skipped test says what is missing, and how to get it."""

from __future__ import annotations

import os
import re
import shutil

import pytest

# Debian's packages that are not called as their programs.
_PACKAGES = {
    "autoreconf": "autoconf automake",
    "libtoolize": "libtool",
    "ninja": "ninja-build",
    "size": "binutils",
}
_CLANG = re.compile(r"clang(?:\+\+)?-(\d+)")
NO_RAY = "ray is not installed; pip install -e '.[ray]'"
_COLAB = "bash tools/check.sh --stack colab --slow"


def missing_programs(*names: str) -> str:
    """Return which programs are not on PATH and how to get them, in one line; "" if all are."""
    lacking = [name for name in names if shutil.which(name) is None]
    if not lacking:
        return ""
    packages = " ".join(dict.fromkeys(map(_package_of, lacking)))
    verb = "is" if len(lacking) == 1 else "are"
    return f"{' and '.join(lacking)} {verb} not installed; apt-get install {packages}"


def _package_of(program: str) -> str:
    """Return the packages that a program comes in; with a clang the headers for its plugins."""
    if clang := _CLANG.fullmatch(program):
        return f"clang-{clang[1]} llvm-{clang[1]}-dev"
    return _PACKAGES.get(program, program)


def skip_if(missing: str) -> None:
    """Skip the test that calls it if something is missing; `missing` says what."""
    if missing:
        pytest.skip(missing)


def need_programs(*names: str) -> None:
    """Skip the test that calls it unless all programs are on PATH."""
    skip_if(missing_programs(*names))


def need_one_of(*names: str) -> str:
    """Return the path of the first program that is on PATH; skip the test if none is."""
    paths = [path for name in names if (path := shutil.which(name))]
    if not paths:
        pytest.skip(missing_programs(names[0]))
    return paths[0]


def needs_programs(*names: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped unless all programs are on PATH."""
    missing = missing_programs(*names)
    return pytest.mark.skipif(bool(missing), reason=missing)


def needs_colab_stack(is_there: bool, stack: str) -> pytest.MarkDecorator:
    """Mark a slow test that is skipped where the stack is not Colab's; `stack` says what it is."""
    return pytest.mark.skipif(not is_there, reason=f"{stack}; {_COLAB}")


needs_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root has and needs this protection; run the tests as root",
)
needs_an_unprivileged_user = pytest.mark.skipif(
    os.geteuid() == 0,
    reason="root may write everywhere; run the tests as another user",
)
