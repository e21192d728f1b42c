"""Read what a corpus records about a bitcode file, with the LLVM of llvmlite."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

from environments import files
from environments.errors import UserError


@dataclasses.dataclass(frozen=True)
class BitcodeFacts:
    """Facts about one module.

    Attributes:
        sha256: hash of the file.
        source: the source file that the bitcode names.
        functions: number of functions that the module defines.
        size_bytes: size of the file.
    """

    sha256: str
    source: str
    functions: int
    size_bytes: int


def read_facts(path: pathlib.Path) -> BitcodeFacts:
    """Read the facts about a bitcode file.

    Raises:
        UserError: if the file cannot be read, or is not bitcode that this LLVM understands.
    """
    from llvmlite import binding as llvm

    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise UserError(f"expected to read {path}, found: {error.strerror}") from None
    try:
        module = llvm.parse_bitcode(data, llvm.create_context())
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        version = ".".join(map(str, llvm.llvm_version_info))
        raise UserError(
            f"expected bitcode that LLVM {version} reads in {path}, found: {reason}; "
            "compile it again, with a clang that is not newer"
        ) from None
    functions = sum(not function.is_declaration for function in module.functions)
    try:
        source = module.source_file
    except UnicodeDecodeError as error:
        source = error.object.decode(errors="replace")
    return BitcodeFacts(hashlib.sha256(data).hexdigest(), source, functions, len(data))
