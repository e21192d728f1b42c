"""What clang says on stderr during a compile: remarks, which name callees, and complaints."""

from __future__ import annotations

import os

_REMARK = b"remark: "
_TAIL_BYTES = 4000
_READ_BYTES = 1 << 13
_MAX_LINE_BYTES = 1 << 16

Names = tuple[str | None, str | None]
"""Names of a call site's callee and caller; None if LLVM has not given them."""


class Remarks:
    """Reads stderr without waiting, and learns the names of callees from it.

    Args:
      fd: descriptor of stderr, which must not block.

    Attributes:
      callees: name of the callee of each decision; None if LLVM has not given it (yet).
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._tail = bytearray()
        self._names: Names = (None, None)
        self._told: tuple = ()
        self.callees: list[str | None] = []

    def drain(self) -> None:
        """Read what has arrived."""
        try:
            while data := os.read(self._fd, _READ_BYTES):
                self._take_text(data)
                if len(data) < _READ_BYTES:
                    return
        except BlockingIOError:
            return

    def names_of(self, values: tuple) -> Names:
        """Return the names of the call site at hand, whose values on the channel are `values`."""
        self._told = values
        return self._names

    def take_decision(self) -> None:
        """Note that the call site at hand was decided."""
        self.callees.append(self._names[0])
        self._names = (None, None)

    def complaint(self) -> str:
        """Return the most telling line that is no remark, after a colon; "" if there is none."""
        said = (self._tail + self._rest).decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower() or "ssertion" in line] or lines
        return f": {telling[0].strip()[:300]}" if telling else ""

    def _take_text(self, text: bytes) -> None:
        *lines, rest = (self._rest + text).split(b"\n")
        self._rest = rest[-_MAX_LINE_BYTES:]
        for line in lines:
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if not line.startswith(_REMARK):
            self._tail += line + b"\n"
            del self._tail[:-_TAIL_BYTES]
            return
        before, refused, after = line.partition(b"' not inlined into '")
        if refused:
            callee, caller = before.rpartition(b"'")[2], after.partition(b"'")[0]
            self._names = (callee.decode(errors="replace"), caller.decode(errors="replace"))
        elif self.callees and self.callees[-1] is None:
            self._name_last_callee(line)

    def _name_last_callee(self, line: bytes) -> None:
        """Take the name of the callee from the remark that follows a decision.

        The remark reads "remark: FILE:LINE:COLUMN: NAME". All values and "true" or "false" follow
        the name without a space, and perhaps the option that asked for remarks, in brackets.
        """
        *_, text = line.partition(b" [-R")[0].rpartition(b": ")
        values = b"%d" * len(self._told) % self._told
        for answer in (b"true", b"false"):
            if text.endswith(values + answer):
                name = text[: -len(values + answer)]
                self.callees[-1] = name.decode(errors="replace") or None
