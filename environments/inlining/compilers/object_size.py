"""Read the sizes of an object file, of its COMDAT groups and of the functions in it.

pyelftools reads every kind of object, but for the hundreds of sections of a C++ object it takes
longer than LLVM takes to compile a small module. So the tables of a 64-bit little-endian object are
read here as NumPy arrays.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import io
import struct
from collections.abc import Iterator, Mapping

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

from environments.errors import UserError

_HEADER_BYTES = 64
_SHOFF_PLACE = 0x28
_SHENTSIZE_PLACE = 0x3A
_SHSTRNDX_PLACE = 0x3E
_SHN_XINDEX = 0xFFFF
_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_SHT_GROUP = 17
_GRP_COMDAT = 1
_STT_FUNC = 2
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
_EXCEPTION_TABLE = ".gcc_except_table."
_GROUPS = np.dtype([("key", "<i8"), ("bytes", "<i4"), ("exec_bytes", "<i4")])


@dataclasses.dataclass(frozen=True)
class ObjectSize:
    """Sizes of one object file, in bytes.

    Attributes:
      text_bytes: the ``text`` column of ``llvm-size`` (Berkeley format): every allocated section
        that is not writable, so code, read-only data and unwind tables.
      exec_bytes: executable sections only.
      packed_groups: how much of `text_bytes` each COMDAT group has, packed; see `groups`.
    """

    text_bytes: int
    exec_bytes: int
    packed_groups: bytes = dataclasses.field(default=b"", repr=False)

    @property
    def groups(self) -> np.ndarray:
        """The COMDAT groups by key: array [G] with fields "key", "bytes" and "exec_bytes".

        A group counts with its code, its exception tables, its read-only data and the `.eh_frame`
        entries of its functions; "exec_bytes" are its code alone. A linker keeps one of all copies
        of a group.
        """
        return np.frombuffer(self.packed_groups, _GROUPS)


def read_object_size(data: bytes) -> ObjectSize:
    """Add up the section sizes of an ELF object.

    Raises:
      UserError: `data` is not an ELF file.
    """
    opened = open_object(data)
    if opened is None:
        return _read_any_size(data)
    sizes = opened.sections["size"]
    try:
        groups = _pack(opened)
    except (IndexError, ValueError, struct.error) as error:
        raise UserError(
            f"object file: expected tables that fit each other, found: {error}; compile it again"
        ) from error
    return ObjectSize(
        int(sizes[opened.is_text].sum()), int(sizes[opened.is_executable].sum()), groups
    )


def _pack(opened: ObjectFile) -> bytes:
    if not opened.groups:
        return b""
    bytes_of_group: collections.Counter[int] = collections.Counter()
    code_of_group: collections.Counter[int] = collections.Counter()
    sizes, is_text = opened.sections["size"], opened.is_text
    for section, key in opened.groups.items():
        if is_text[section]:
            bytes_of_group[key] += int(sizes[section])
        if opened.is_executable[section]:
            code_of_group[key] += int(sizes[section])
    for section, _, size in opened.unwind_entries():
        if section in opened.groups:
            bytes_of_group[opened.groups[section]] += size
    rows = [(key, size, code_of_group[key]) for key, size in sorted(bytes_of_group.items())]
    return np.array(rows, _GROUPS).tobytes()


def _read_any_size(data: bytes) -> ObjectSize:
    text_bytes = exec_bytes = 0
    for section in read_sections(data, "object file", "; compile for a Linux target"):
        flags = section["sh_flags"]
        if not flags & SH_FLAGS.SHF_ALLOC or section["sh_type"] == "SHT_NOBITS":
            continue
        if flags & SH_FLAGS.SHF_EXECINSTR:
            exec_bytes += section["sh_size"]
        if flags & SH_FLAGS.SHF_EXECINSTR or not flags & SH_FLAGS.SHF_WRITE:
            text_bytes += section["sh_size"]
    return ObjectSize(text_bytes, exec_bytes)


def read_sections(data: bytes, subject: str, remedy: str = "") -> list[Section]:
    """Return the sections of any ELF file.

    Raises:
      UserError: `data` is not an ELF file; `subject` and `remedy` begin and end the message.
    """
    try:
        return list(ELFFile(io.BytesIO(data)).iter_sections())
    except (ELFError, OSError) as error:
        raise UserError(f"{subject}: expected ELF, found {data[:4]!r} ({error}){remedy}") from error


def read_section_bytes(data: bytes) -> dict[str, int]:
    """Return the bytes of an ELF object's loaded sections: of .text with all .text.NAME, and so on.

    Raises:
      UserError: `data` is not an ELF file.
    """
    sizes: collections.Counter[str] = collections.Counter()
    for section in read_sections(data, "object file", "; compile it again"):
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_size"]:
            sizes["." + section.name.split(".")[1]] += section["sh_size"]
    return dict(sizes)


def read_function_bytes(
    data: bytes, worth: Mapping[int, float] | None = None, table_weight: float = 1.0
) -> dict[str, float]:
    """Return what each function adds to the text column of an x86-64 ELF object, in bytes.

    A function adds its code, its entry in `.eh_frame` and, if that has a section of its own, its
    exception table. Constants are not counted, because functions share them.

    Args:
      data: a relocatable object as LLVM emits it.
      worth: what a byte of a COMDAT group counts, by key of the group; 1 for others.
      table_weight: what a byte of `.eh_frame` and of exception tables counts beside one of code.

    Returns:
      Bytes by name of the function.
    """
    opened = open_object(data)
    if opened is None or not len(opened.sections):
        return {}
    # What a byte of each section in a COMDAT group counts.
    factor = {section: (worth or {}).get(key, 1) for section, key in opened.groups.items()}
    bytes_of_function: dict[str, float] = collections.defaultdict(float)
    at: dict[tuple[int, int], str] = {}
    for name, section, address, size in opened.functions():
        bytes_of_function[name] += size * factor.get(section, 1)
        at[section, address] = name
    for section, section_name in enumerate(opened.section_names):
        if section_name.startswith(_EXCEPTION_TABLE):
            size = int(opened.sections[section]["size"])
            name = section_name.removeprefix(_EXCEPTION_TABLE)
            bytes_of_function[name] += table_weight * size * factor.get(section, 1)
    for section, address, size in opened.unwind_entries():
        if (section, address) in at:
            name = at[section, address]
            bytes_of_function[name] += table_weight * size * factor.get(section, 1)
    return dict(bytes_of_function)


class ObjectFile:
    """The tables of one object. Use `open_object`.

    Attributes:
      sections: the section headers, a structured array [S].
    """

    def __init__(self, data: bytes, sections: np.ndarray) -> None:
        self._data = data
        self.sections = sections

    @functools.cached_property
    def is_executable(self) -> np.ndarray:
        """Whether each section holds code, bool [S]."""
        flags = self.sections["flags"]
        return self._is_loaded & (flags & SH_FLAGS.SHF_EXECINSTR != 0)

    @functools.cached_property
    def is_text(self) -> np.ndarray:
        """Whether the ``text`` column of ``llvm-size`` counts each section, bool [S]."""
        is_writable = self.sections["flags"] & SH_FLAGS.SHF_WRITE != 0
        return self.is_executable | (self._is_loaded & ~is_writable)

    @property
    def _is_loaded(self) -> np.ndarray:
        flags, kinds = self.sections["flags"], self.sections["type"]
        return (flags & SH_FLAGS.SHF_ALLOC != 0) & (kinds != _SHT_NOBITS)

    @functools.cached_property
    def section_names(self) -> list[str]:
        """The name of each section."""
        (place,) = struct.unpack_from("<H", self._data, _SHSTRNDX_PLACE)
        if place == _SHN_XINDEX:
            place = int(self.sections[0]["link"])
        names = self._content(place)
        return [_text_at(names, start) for start in self.sections["name"].tolist()]

    @functools.cached_property
    def groups(self) -> dict[int, int]:
        """The COMDAT group of each section in one: section number to the group's key.

        A linker keeps one copy of a group. Groups of the same name in other objects have the same
        key, 63 bits of the name's hash.
        """
        key_of_section: dict[int, int] = {}
        for number in np.flatnonzero(self.sections["type"] == _SHT_GROUP).tolist():
            flags, *members = np.frombuffer(self._content(number), "<u4").tolist()
            if flags & _GRP_COMDAT:
                key = _key(self._symbol_name(int(self.sections[number]["info"])))
                key_of_section |= dict.fromkeys(members, key)
        return key_of_section

    def functions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (name, section, address, bytes of code) of each function that is defined here."""
        symbols = self._symbols
        chosen = symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["section"] > 0)]
        for start, _, _, section, address, size in chosen.tolist():
            yield _text_at(self._symbol_names, start), section, address, size

    def unwind_entries(self) -> Iterator[tuple[int, int, int]]:
        """Yield (section, address, bytes of its `.eh_frame` entry) for each function with one."""
        if not {".eh_frame", ".rela.eh_frame"} <= set(self.section_names):
            return
        frames = self._content(self.section_names.index(".eh_frame"))
        relocations = self._content(self.section_names.index(".rela.eh_frame"))
        rows = np.frombuffer(relocations, _RELOCATION).tolist()
        targets = {offset: (symbol, addend) for offset, _, symbol, addend in rows}
        offset = 0
        while offset + 8 <= len(frames):
            length, identity = struct.unpack_from("<II", frames, offset)
            # An entry with identity 0 is shared (a CIE). In a function's own entry (an FDE), the
            # function's address follows the identity.
            if identity and offset + 8 in targets:
                symbol, addend = targets[offset + 8]
                place = self._symbols[symbol]
                yield int(place["section"]), int(place["value"]) + addend, length + 4
            offset += length + 4

    @functools.cached_property
    def _symbol_table(self) -> int | None:
        tables = np.flatnonzero(self.sections["type"] == _SHT_SYMTAB)
        return int(tables[0]) if len(tables) else None

    @functools.cached_property
    def _symbols(self) -> np.ndarray:
        if self._symbol_table is None:
            return np.empty(0, _SYMBOL)
        return np.frombuffer(self._content(self._symbol_table), _SYMBOL)

    @functools.cached_property
    def _symbol_names(self) -> bytes:
        if self._symbol_table is None:
            return b""
        return self._content(int(self.sections[self._symbol_table]["link"]))

    def _symbol_name(self, number: int) -> str:
        return _text_at(self._symbol_names, int(self._symbols[number]["name"]))

    def _content(self, number: int) -> bytes:
        section = self.sections[number]
        return self._data[int(section["offset"]) : int(section["offset"] + section["size"])]


def open_object(data: bytes) -> ObjectFile | None:
    """Return the tables of a 64-bit little-endian object; None for any other file."""
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
    return ObjectFile(data, np.frombuffer(data, _SECTION, count, start))


def _text_at(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode(errors="replace")


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1
