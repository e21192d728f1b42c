"""Read the sizes of an object file, of its COMDAT groups and of the functions in it."""

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
from environments.inlining.compilers.object_file import ObjectFile, open_object

_EXCEPTION_TABLE = ".gcc_except_table."
_GROUPS = np.dtype([("key", "<i8"), ("bytes", "<i4")])


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
        """The COMDAT groups by key, a structured array [G] with fields "key" and "bytes".

        A group counts with its code, its exception tables, its read-only data and the `.eh_frame`
        entries of its functions. A linker keeps one of all copies of a group.
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
    sizes, is_text = opened.sections["size"], opened.is_text
    for section, key in opened.groups.items():
        if is_text[section]:
            bytes_of_group[key] += int(sizes[section])
    for section, _, size in opened.unwind_entries():
        if section in opened.groups:
            bytes_of_group[opened.groups[section]] += size
    return np.array(sorted(bytes_of_group.items()), _GROUPS).tobytes()


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


def read_function_bytes(data: bytes, worth: Mapping[int, float] | None = None) -> dict[str, float]:
    """Return what each function adds to the text column of an x86-64 ELF object, in bytes.

    A function adds its code, its entry in `.eh_frame` and, if that has a section of its own, its
    exception table. Constants are not counted, because functions share them.

    Args:
      data: a relocatable object as LLVM emits it.
      worth: what a byte of a COMDAT group counts, by key of the group; 1 for others.

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
            bytes_of_function[section_name.removeprefix(_EXCEPTION_TABLE)] += size * factor.get(
                section, 1
            )
    for section, address, size in opened.unwind_entries():
        if (section, address) in at:
            bytes_of_function[at[section, address]] += size * factor.get(section, 1)
    return dict(bytes_of_function)
