"""The sizes that this project counts, read from an object file."""

from __future__ import annotations

import dataclasses
import io

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
