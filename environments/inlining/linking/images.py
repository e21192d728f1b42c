"""Link the objects of a project, and read how large the image is.

Objects exaggerate what inlining saves: each holds its own copy of a C++ inline function, and a
linker keeps one of them. Objects are linked as people link who care for size: what cannot be
reached goes, and functions of the same code are folded. A library becomes a shared library, whose
visible functions can all be reached; the objects of a single program are linked from its `main`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from elftools.elf.constants import SH_FLAGS

from environments.errors import UserError
from environments.inlining.compilers.object_size import open_object, read_sections

_LINKER = (sys.executable, "-m", "ziglang", "ld.lld")
_OPTIONS = (
    "-z",
    "muldefs",  # copies of programs' helpers, which only the project's own build keeps apart
    "--unresolved-symbols=ignore-all",  # other libraries are not there
    "--noinhibit-exec",  # nor modules that the corpus leaves out, whose symbols may be hidden
    "--gc-sections",
    "--icf=all",
    "--eh-frame-hdr",
    "--build-id=none",
    "--strip-all",
)
_TIMEOUT_S = 300.0
_UNWIND_SECTIONS = (".eh_frame", ".eh_frame_hdr", ".gcc_except_table")
_OF_DYNAMIC_LINKER = {
    *("SHT_DYNSYM", "SHT_STRTAB", "SHT_HASH", "SHT_GNU_HASH", "SHT_RELA", "SHT_REL", "SHT_RELR"),
    *("SHT_GNU_versym", "SHT_GNU_verneed", "SHT_GNU_verdef"),
}
_STRIPPED = (".symtab", ".strtab", ".debug", ".zdebug", ".gdb_index")
# The beginning of ld.lld's message says why it failed; the rest names more symbols.
_MESSAGE_CHARACTERS = 300


@dataclasses.dataclass(frozen=True)
class ImageSize:
    """Sizes of a linked image, in bytes.

    Attributes:
      text_bytes: executable sections.
      unwind_bytes: .eh_frame, .eh_frame_hdr and .gcc_except_table.
      rodata_bytes: other sections that are loaded and not writable, but for the next.
      dynamic_bytes: what the dynamic linker reads: exported symbols, their hashes, relocations.
      file_bytes: the stripped file.
    """

    text_bytes: int
    unwind_bytes: int
    rodata_bytes: int
    dynamic_bytes: int
    file_bytes: int


PARTS = tuple(field.name for field in dataclasses.fields(ImageSize))
"""Names of the sizes of an image."""

LOADED_PARTS = ("text_bytes", "unwind_bytes", "rodata_bytes")
"""Code, and what a program needs beside it to run and to unwind; the code first."""


def link(objects: Sequence[pathlib.Path], image: pathlib.Path) -> ImageSize:
    """Link object files into an image; return its sizes.

    Args:
      objects: ELF objects of one project; of several definitions of a function the first counts.
      image: the file to write.

    Raises:
      UserError: the linker refuses the objects.
    """
    mains = [path for path in objects if _defines_main(path)]
    entry = ("-e", "main") if len(mains) == 1 else ("-shared",)
    # The names go through a file: hundreds of paths can exceed the length of a command line.
    listed = image.with_name(f"{image.name}.objects")
    listed.write_text("".join(f'"{_quoted(path)}"\n' for path in objects), encoding="utf-8")
    command = [*_LINKER, *_OPTIONS, *entry, "-o", os.fspath(image), f"@{listed}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"{image.name}: expected it linked within {_TIMEOUT_S:g} s, found the linker still busy"
        ) from error
    if done.returncode != 0:
        raise UserError(
            f"{image.name}: expected objects that can be linked, found: "
            f"{' '.join(done.stderr.split())[:_MESSAGE_CHARACTERS]}"
        )
    return read_image_size(image.read_bytes())


def read_image_size(data: bytes) -> ImageSize:
    """Add up the section sizes of a linked ELF file.

    Raises:
      UserError: `data` is not an ELF file.
    """
    text = unwind = rodata = dynamic = 0
    for section in read_sections(data, "image"):
        flags, size = section["sh_flags"], section["sh_size"]
        if not flags & SH_FLAGS.SHF_ALLOC or section["sh_type"] == "SHT_NOBITS":
            continue
        if flags & SH_FLAGS.SHF_EXECINSTR:
            text += size
        elif section.name in _UNWIND_SECTIONS:
            unwind += size
        elif section["sh_type"] in _OF_DYNAMIC_LINKER:
            dynamic += size
        elif not flags & SH_FLAGS.SHF_WRITE:
            rodata += size
    return ImageSize(text, unwind, rodata, dynamic, len(data))


def stripped_bytes(data: bytes) -> int:
    """Return the size of a linked ELF file without its symbols and debug information.

    Raises:
      UserError: `data` is not an ELF file.
    """
    return len(data) - sum(
        section["sh_size"]
        for section in read_sections(data, "image")
        if section.name.startswith(_STRIPPED) and not section["sh_flags"] & SH_FLAGS.SHF_ALLOC
    )


def _defines_main(path: pathlib.Path) -> bool:
    opened = open_object(path.read_bytes())
    return opened is not None and any(name == "main" for name, *_ in opened.functions())


def _quoted(path: pathlib.Path) -> str:
    """A path as a response file has it between quotes."""
    return os.fspath(path).replace("\\", "\\\\").replace('"', '\\"')
