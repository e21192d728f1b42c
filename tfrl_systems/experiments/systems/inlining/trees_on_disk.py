"""What a build has left on disk: objects of other compilers, and linked images."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from environments import files
from environments.errors import UserError
from environments.inlining.linking.images import read_image_size, stripped_bytes

# The last four are what CMake compiles to learn about the compiler.
_SKIPPED = frozenset(
    {".git", ".hg", ".svn", "CompilerIdC", "CompilerIdCXX", "CMakeTmp", "CMakeScratch"}
)
# Where CMake keeps objects, and probes that it linked itself.
_OF_CMAKE = "CMakeFiles"
_ELF = b"\x7fELF"
_PARTS = ("text_bytes", "unwind_bytes", "rodata_bytes", "file_bytes")


@dataclasses.dataclass(frozen=True)
class Tree:
    """The directories that a build writes to.

    Attributes:
      roots: existing directories, none inside another.
    """

    roots: tuple[pathlib.Path, ...]

    @classmethod
    def of(cls, command: Sequence[str]) -> Tree:
        """Return the directories that a command names, and the current one."""
        named = [pathlib.Path.cwd()]
        for word in command[1:]:
            for text in (word, word.partition("=")[2], word[2:] if word.startswith("-C") else ""):
                path = pathlib.Path(text)
                if text and path.is_dir():
                    named.append(path.resolve())
        unique = sorted(set(named), key=lambda path: len(path.parts))
        kept: list[pathlib.Path] = []
        for path in unique:
            if not any(path.is_relative_to(root) for root in kept):
                kept.append(path)
        return cls(tuple(kept))

    def files(self) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
        """Yield (root, path) of each regular file that begins like an ELF file."""
        for root in self.roots:
            for directory, folders, names in os.walk(root):
                folders[:] = [one for one in folders if one not in _SKIPPED]
                for name in names:
                    path = pathlib.Path(directory, name)
                    if _begins_like_elf(path):
                        yield root, path


def _begins_like_elf(path: pathlib.Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == _ELF
    except OSError:
        return False


def look(
    tree: Tree, began_ns: int, compared: pathlib.Path | None
) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Look at what a build has written since it began.

    Args:
      tree: where it writes.
      began_ns: when it began, as the file system counts.
      compared: another build of the same tree; None for none.

    Returns:
      Objects of other compilers, as `tfrl build --json` prints "plain", and the linked images. With
      `compared` also images that were not linked now, if both trees have them.
    """
    plain, images = [], []
    for root, path in tree.files():
        try:
            is_new = path.stat().st_mtime_ns >= began_ns
            other = None if compared is None else _twin(path, root, compared)
            if not is_new and other is None:
                continue
            with path.open("rb") as file:
                elf = ELFFile(file)
                kind = elf["e_type"]
                if kind == "ET_REL" and is_new and (reason := _foreign(elf)):
                    plain.append({"file": os.path.relpath(path), "reason": reason})
            if kind in ("ET_EXEC", "ET_DYN") and _OF_CMAKE not in path.parts:
                images.append(_weigh(path, other))
        except (OSError, ELFError, UserError):
            continue  # removed meanwhile, or half written by a build that was interrupted
    return plain, sorted(images, key=lambda one: one["path"])


def _foreign(elf: ELFFile) -> str:
    """Return which other compiler made an object; "" if clang did, or if it does not say."""
    comment = elf.get_section_by_name(".comment")
    data = comment.data() if comment is not None else b""
    if b"clang" in data or b"LLVM" in data or b"GCC:" not in data:
        return ""
    return "compiled by GCC"


def _twin(path: pathlib.Path, root: pathlib.Path, compared: pathlib.Path) -> pathlib.Path | None:
    """Return the same image of the other build, whichever directory that one is of."""
    parts = path.relative_to(root).parts
    for first in range(len(parts)):
        twin = compared.joinpath(*parts[first:])
        if twin.resolve() != path.resolve() and _begins_like_elf(twin):
            return twin
    return None


def _weigh(path: pathlib.Path, other: pathlib.Path | None) -> dict[str, Any]:
    found = {"path": os.path.relpath(path), **_sizes(path)}
    if other is not None:
        found |= {f"default_{part}": value for part, value in _sizes(other).items()}
    return found


def _sizes(path: pathlib.Path) -> dict[str, int]:
    data = files.read_bytes(path)
    sizes = dataclasses.replace(read_image_size(data), file_bytes=stripped_bytes(data))
    return {part: getattr(sizes, part) for part in _PARTS}
