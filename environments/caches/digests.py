"""Digests of what caches keep."""

from __future__ import annotations

import hashlib
from typing import Any

SIZE = 32
"""Bytes of a digest."""


def digest(*parts: Any) -> bytes:
    """Return a hash of bytes, texts and numbers; their types and their order count."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        found.update(f"{type(part).__name__} {len(data)} ".encode())
        found.update(data)
    return found.digest()
