"""What a build has left on disk: objects of other compilers, and linked images."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterator, Sequence
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
# How objects begin that are for Windows, macOS or the web, or LLVM's bitcode. Many files may begin
# like those of Windows, with the number of a machine, so names decide too.
_OTHER_OBJECTS = (
    *(b"\x64\x86", b"\x4c\x01", b"\x64\xaa", b"\xc4\x01", b"\0\0\xff\xff"),
    *(b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe"),
    b"\0asm",
    b"BC\xc0\xde",
)
_OBJECT_SUFFIXES = (".o", ".obj")
_IMAGES = ("ET_EXEC", "ET_DYN")
_CLANG = b"clang version"


def directories_of(command: Sequence[str]) -> list[pathlib.Path]:
    """Return the directories that a command names, and the current one, the outermost first."""
    named = set()
    with contextlib.suppress(OSError):  # The current directory may have been removed.
        named.add(pathlib.Path.cwd())
    for word in command[1:]:
        for text in (word, word.partition("=")[2], word[2:] if word.startswith("-C") else ""):
            if text and files.is_directory(text):
                named.add(pathlib.Path(text).resolve())
    return sorted(named, key=lambda path: (len(path.parts), path))


def roots_of(command: Sequence[str]) -> list[pathlib.Path]:
    """Return the directories of `directories_of` that are inside no other."""
    roots: list[pathlib.Path] = []
    for path in directories_of(command):
        if not any(path.is_relative_to(root) for root in roots):
            roots.append(path)
    return roots


def _binaries(
    roots: Sequence[pathlib.Path], began_ns: int, names: Collection[str]
) -> Iterator[tuple[pathlib.Path, pathlib.Path, bool]]:
    """Yield ELF files, and objects of other formats: (root, path, whether it is new).

    Args:
      roots: directories to look below.
      began_ns: what was written since then is new, as the file system counts.
      names: files of these names are yielded even if they are not new.
    """
    for root in roots:
        for entry in _files_below(root):
            try:
                is_new = entry.stat(follow_symlinks=False).st_mtime_ns >= began_ns
            except OSError:
                continue
            path = pathlib.Path(entry.path)
            if (is_new or entry.name in names) and (
                _begins_like(path, _ELF) or _is_other_object(path)
            ):
                yield root, path, is_new


def _files_below(root: str | os.PathLike) -> Iterator[os.DirEntry]:
    """Yield what is no directory below one, and follow no links."""
    waiting = [os.fspath(root)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif entry.name not in _SKIPPED:
                    waiting.append(entry.path)


def _begins_like(path: pathlib.Path, *beginnings: bytes) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4).startswith(beginnings)
    except OSError:
        return False


def _is_other_object(path: pathlib.Path) -> bool:
    return path.suffix in _OBJECT_SUFFIXES and _begins_like(path, *_OTHER_OBJECTS)


@dataclasses.dataclass(frozen=True)
class Made:
    """What a build has written since it began.

    Attributes:
      foreign: objects of other compilers, and which these are.
      objects: clang's objects, and those of formats that do not say which compiler made them.
      unsigned: objects that do not say which compiler made them.
      linked: images of which a part was compiled by clang.
      images: the linked images, as `tfrl build --json` prints them.
      new_images: which of them were linked now.
    """

    foreign: dict[str, str]
    objects: list[str]
    unsigned: list[str]
    linked: list[str]
    images: list[dict[str, Any]]
    new_images: list[str]


def look(roots: Sequence[pathlib.Path], began_ns: int, compared: pathlib.Path | None) -> Made:
    """Look at what a build has written since it began.

    Args:
      roots: where it writes.
      began_ns: when it began, as the file system counts.
      compared: another build of the same tree; None for none. Images that both trees have are then
        shown even if they were not linked now.
    """
    names = set() if compared is None else {entry.name for entry in _files_below(compared)}
    changes = Made({}, [], [], [], [], [])
    for root, path, is_new in _binaries(roots, began_ns, names):
        try:
            if _is_other_object(path):
                changes.objects.extend([shown(path)] if is_new else [])
                continue
            twin = None if compared is None else _twin(path, root, compared)
            with path.open("rb") as file:
                elf = ELFFile(file)
                section = elf.get_section_by_name(".comment")
                kind, comment = elf["e_type"], section.data() if section is not None else b""
            if kind == "ET_REL" and is_new:
                if _CLANG in comment:
                    changes.objects.append(shown(path))
                elif b"GCC:" in comment and not (b"clang" in comment or b"LLVM" in comment):
                    changes.foreign[shown(path)] = "compiled by GCC"
                elif not comment:  # clang's with -fno-ident, or an assembler's
                    changes.unsigned.append(shown(path))
            if kind in _IMAGES and _OF_CMAKE not in path.parts and (is_new or twin is not None):
                image = {"path": shown(path), **_sizes(path)}
                if twin is not None:
                    image |= {f"default_{part}": size for part, size in _sizes(twin).items()}
                changes.images.append(image)
                changes.new_images.extend([shown(path)] if is_new else [])
                if is_new and _CLANG in comment:
                    changes.linked.append(shown(path))
        except (OSError, ELFError, UserError):
            continue  # removed meanwhile, or half written by a build that was interrupted
    changes.images.sort(key=lambda image: image["path"])
    return changes


def unheard(objects: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Return objects of clangs that told nothing.

    Args:
      objects: clang's objects.
      sources: the sources of the compiles that were told of, without directories. Not all of them
        have an object that is still there.
    """
    stems = {pathlib.PurePath(source).stem for source in sources}
    silent = [
        path for path in objects if not any(stem in pathlib.PurePath(path).name for stem in stems)
    ]
    return silent[: max(0, len(objects) - len(sources))]


def shown(path: pathlib.Path) -> str:
    """Return a path as people know it, from the current directory if there is one."""
    try:
        return os.path.relpath(path)
    except OSError:
        return os.fspath(path)


def _twin(path: pathlib.Path, root: pathlib.Path, compared: pathlib.Path) -> pathlib.Path | None:
    """Return the same image of the other build, whichever directory that one is of."""
    parts = path.relative_to(root).parts
    for first in range(len(parts)):
        twin = compared.joinpath(*parts[first:])
        if twin.resolve() != path.resolve() and _begins_like(twin, _ELF):
            return twin
    return None


def _sizes(path: pathlib.Path) -> dict[str, int]:
    data = files.read_bytes(path)
    sizes = dataclasses.replace(read_image_size(data), file_bytes=stripped_bytes(data))
    return dataclasses.asdict(sizes)
