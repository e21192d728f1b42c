"""The verb `tfrl cache`, which shows and clears what is kept for the next run."""

from __future__ import annotations

import argparse
from typing import Any

from environments.caches.table import CACHES
from environments.errors import UserError
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json

_INFO = """\
Shows what is kept for the next run, where, and how much it may become. What was not used for the
longest time makes room.

  tfrl cache info
  tfrl cache info --json
"""
_CLEAR = """\
Clears caches, also while other processes use them: they find out again what they need. Without a
name, all of them.

  tfrl cache clear
  tfrl cache clear compiles costs
"""


def add_parser(subparsers: Any) -> None:
    """Add `cache` to the verbs."""
    cache = shared.add_verb(
        subparsers, "cache", "show and clear what is kept for the next run",
        "What was expensive to find out is kept for the next run, in $XDG_CACHE_HOME/tfrl or "
        "~/.cache/tfrl.",
    )  # fmt: skip
    verbs = cache.add_subparsers(title="verbs", metavar="VERB", required=True)
    info = shared.add_verb(verbs, "info", "show the caches", _INFO)
    shared.add_json(info)
    info.set_defaults(run=run_info)
    clear = shared.add_verb(verbs, "clear", "clear caches", _CLEAR)
    clear.add_argument(
        "name",
        nargs="*",
        type=_name,
        metavar="NAME",
        help=f"one of {', '.join(CACHES)} (default: all)",
    )
    clear.set_defaults(run=run_clear)


def _name(text: str) -> str:
    if text not in CACHES:
        raise argparse.ArgumentTypeError(
            f"expected one of {', '.join(CACHES)}, found {text!r}; tfrl cache info explains them"
        )
    return text


def run_info(options: argparse.Namespace) -> int:
    """Show the caches."""
    usages = [cache.usage() for cache in CACHES.values()]
    if options.json:
        show_json({"caches": usages})
        return 0
    for usage in usages:
        size = f"{usage['size_bytes'] / 1e6:,.1f} of {usage['bound_bytes'] / 1e6:,.0f} MB"
        contents = CACHES[usage["name"]].holds
        show(f"{usage['name']:14}  {size:>20}  {usage['entries']:9,} entries  {contents}")
        show(f"{'':14}  {usage['path']}")
    return 0


def run_clear(options: argparse.Namespace) -> int:
    """Clear the caches that the command line names, or all."""
    in_use = [name for name in options.name or CACHES if not CACHES[name].clear()]
    if in_use:
        raise UserError(
            f"cache: expected {', '.join(in_use)} free, found another process that uses it; "
            "clear it again when that has ended"
        )
    return 0
