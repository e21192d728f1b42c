"""Read the sizes of an object file and of the functions in it."""

from __future__ import annotations

import collections
import dataclasses
import io
import struct
from collections.abc import Mapping

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from environments.errors import UserError


@dataclasses.dataclass(frozen=True)
class ObjectSize:
    """Sizes of one object file, in bytes.

    Attributes:
      text_bytes: the ``text`` column of ``llvm-size`` (Berkeley format): every allocated section
        that is not writable, so code, read-only data and unwind tables.
      exec_bytes: executable sections only.
    """

    text_bytes: int
    exec_bytes: int


def read_object_size(data: bytes) -> ObjectSize:
    """Add up the section sizes of an ELF object.

    Raises:
      UserError: `data` is not an ELF file.
    """
    if (sections := _read_sections(data)) is not None:
        kept = (sections["flags"] & SH_FLAGS.SHF_ALLOC != 0) & (sections["type"] != _SHT_NOBITS)
        executed = kept & (sections["flags"] & SH_FLAGS.SHF_EXECINSTR != 0)
        text = executed | (kept & (sections["flags"] & SH_FLAGS.SHF_WRITE == 0))
        sizes = sections["size"]
        return ObjectSize(int(sizes[text].sum()), int(sizes[executed].sum()))
    return _read_any_size(data)


def _read_sections(data: bytes) -> np.ndarray | None:
    """Return the section headers of a 64-bit little-endian object; None for any other file.

    pyelftools reads every kind of object, but for the hundreds of sections of a C++ object it takes
    longer than LLVM takes to compile a small module.
    """
    if len(data) < _HEADER_BYTES or data[:6] != b"\x7fELF\x02\x01":
        return None
    (start,) = struct.unpack_from("<Q", data, _SHOFF_PLACE)
    entry_bytes, count = struct.unpack_from("<HH", data, _SHENTSIZE_PLACE)
    if entry_bytes != _SECTION.itemsize or not start:
        return None
    if count == 0 and start + entry_bytes <= len(data):
        # The header's field is too small for the number of sections; the first section's size field
        # holds it instead.
        count = int(np.frombuffer(data, _SECTION, 1, start)["size"][0])
    if start + count * entry_bytes > len(data):
        return None
    return np.frombuffer(data, _SECTION, count, start)


def _read_any_size(data: bytes) -> ObjectSize:
    text_bytes = exec_bytes = 0
    try:
        for section in ELFFile(io.BytesIO(data)).iter_sections():
            flags = section["sh_flags"]
            if not flags & SH_FLAGS.SHF_ALLOC or section["sh_type"] == "SHT_NOBITS":
                continue
            if flags & SH_FLAGS.SHF_EXECINSTR:
                exec_bytes += section["sh_size"]
            if flags & SH_FLAGS.SHF_EXECINSTR or not flags & SH_FLAGS.SHF_WRITE:
                text_bytes += section["sh_size"]
    except (ELFError, OSError) as error:
        raise UserError(
            f"object file: expected ELF, found {data[:4]!r} ({error}); compile for a Linux target"
        ) from error
    return ObjectSize(text_bytes, exec_bytes)


_HEADER_BYTES = 64
_SHOFF_PLACE = 0x28
_SHENTSIZE_PLACE = 0x3A
_SHSTRNDX_PLACE = 0x3E
_SHN_XINDEX = 0xFFFF
_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("alignment", "<u8"),
        ("entry_size", "<u8"),
    ]
)
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_STT_FUNC = 2
_EXCEPTION_TABLE = ".gcc_except_table."


def read_function_bytes(data: bytes) -> dict[str, int]:
    """Return what each function adds to the text column of an x86-64 ELF object, in bytes.

    A function adds its code, its entry in `.eh_frame` and, if that has a section of its own, its
    exception table. Constants are not counted, because functions share them.

    Args:
      data: a relocatable object as LLVM emits it.

    Returns:
      Bytes by name of the function.
    """
    sections = _read_sections(data)
    if sections is None or not len(sections):
        return {}
    tables = sections[sections["type"] == _SHT_SYMTAB]
    if not len(tables):
        return {}
    symbols = np.frombuffer(_content(data, tables[0]), _SYMBOL)
    names = _content(data, sections[tables[0]["link"]])
    found: collections.Counter[str] = collections.Counter()
    at: dict[tuple[int, int], str] = {}
    chosen = symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["section"] > 0)]
    for start, _, _, section, value, size in chosen.tolist():
        name = names[start : names.index(b"\0", start)].decode(errors="replace")
        found[name] += size
        at[section, value] = name
    by_name = _section_names(data, sections)
    for section_name, section in by_name:
        if section_name.startswith(_EXCEPTION_TABLE):
            found[section_name.removeprefix(_EXCEPTION_TABLE)] += int(section["size"])
    for place, size in _frame_entries(data, dict(by_name), symbols):
        if place in at:
            found[at[place]] += size
    return dict(found)


def _content(data: bytes, section: np.void) -> bytes:
    return data[int(section["offset"]) : int(section["offset"] + section["size"])]


def _section_names(data: bytes, sections: np.ndarray) -> list[tuple[str, np.void]]:
    (place,) = struct.unpack_from("<H", data, _SHSTRNDX_PLACE)
    if place == _SHN_XINDEX:
        place = int(sections[0]["link"])
    names = _content(data, sections[place])
    return [
        (names[start : names.index(b"\0", start)].decode(errors="replace"), section)
        for start, section in zip(sections["name"].tolist(), sections, strict=True)
    ]


def _frame_entries(
    data: bytes, sections: Mapping[str, np.void], symbols: np.ndarray
) -> list[tuple[tuple[int, int], int]]:
    """Return ((section, address) of the function, bytes) for each function's `.eh_frame` entry."""
    if ".eh_frame" not in sections or ".rela.eh_frame" not in sections:
        return []
    relocations = np.frombuffer(_content(data, sections[".rela.eh_frame"]), _RELOCATION)
    targets = {offset: (symbol, addend) for offset, _, symbol, addend in relocations.tolist()}
    frames, offset, entries = _content(data, sections[".eh_frame"]), 0, []
    while offset + 8 <= len(frames):
        length, identity = struct.unpack_from("<II", frames, offset)
        # An entry with identity 0 is shared (a CIE). In a function's own entry (an FDE), the
        # function's address follows the identity.
        if identity and offset + 8 in targets:
            symbol, addend = targets[offset + 8]
            where = (int(symbols[symbol]["section"]), int(symbols[symbol]["value"]) + addend)
            entries.append((where, length + 4))
        offset += length + 4
    return entries
