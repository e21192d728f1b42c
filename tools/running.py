"""How every tool runs: what a user can mend is one line, and an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from environments.errors import UserError


def exit_status(run: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Run a tool, and return its exit status; errors of the user are reported in one line."""
    try:
        run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0
