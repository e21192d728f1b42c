"""The sizes that this project counts, read from an object file."""

from __future__ import annotations

import collections
import dataclasses
import io
import struct

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
    """Adds up the section sizes of an ELF object.

    Raises:
      UserError: `data` is not an ELF file.
    """
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
    """What each function adds to the text column of an x86-64 ELF object, in bytes.

    A function brings its code, its entry in `.eh_frame` and, where that has a section of its own,
    its exception table. Constants are not counted: functions share them.

    Args:
      data: a relocatable object as LLVM emits it.

    Returns:
      Bytes by name of the function.
    """
    elf = ELFFile(io.BytesIO(data))
    table = elf.get_section_by_name(".symtab")
    if table is None:
        return {}
    symbols = np.frombuffer(table.data(), _SYMBOL)
    names = elf.get_section(table["sh_link"]).data()
    found: collections.Counter[str] = collections.Counter()
    at: dict[tuple[int, int], str] = {}
    for symbol in symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["section"] > 0)]:
        start = int(symbol["name"])
        name = names[start : names.index(b"\0", start)].decode(errors="replace")
        found[name] += int(symbol["size"])
        at[int(symbol["section"]), int(symbol["value"])] = name
    for section in elf.iter_sections():
        if section.name.startswith(_EXCEPTION_TABLE):
            found[section.name.removeprefix(_EXCEPTION_TABLE)] += section["sh_size"]
    for place, size in _frame_entries(elf, symbols):
        if place in at:
            found[at[place]] += size
    return dict(found)


def _frame_entries(elf: ELFFile, symbols: np.ndarray) -> list[tuple[tuple[int, int], int]]:
    """((section, address) of the function, bytes) for each entry of `.eh_frame`."""
    frames = elf.get_section_by_name(".eh_frame")
    relocations = elf.get_section_by_name(".rela.eh_frame")
    if frames is None or relocations is None:
        return []
    targets = {
        int(one["offset"]): (one["symbol"], int(one["addend"]))
        for one in np.frombuffer(relocations.data(), _RELOCATION)
    }
    data, offset, entries = frames.data(), 0, []
    while offset + 8 <= len(data):
        length, identity = struct.unpack_from("<II", data, offset)
        # An identity of 0 is a common entry; in a function's own, its address follows.
        if identity and offset + 8 in targets:
            symbol, addend = targets[offset + 8]
            where = (int(symbols[symbol]["section"]), int(symbols[symbol]["value"]) + addend)
            entries.append((where, length + 4))
        offset += length + 4
    return entries
