"""Output for the user: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(message: str) -> None:
    """Print one line for the user to read, on stderr."""
    print(message, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result."""
    print(text, flush=True)


def show_json(value: Any) -> None:
    """Print a result as one JSON object."""
    print(json.dumps(value, allow_nan=False), flush=True)
