"""Parsers and options that several verbs share."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from environments.errors import UsageError
from environments.machine import num_processors
from tfrl_systems.experiments.arguments import take_negatives, whole_number
from tfrl_systems.experiments.records import find_system, summary_of, system_names

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.system import System


class LazyParser(argparse.ArgumentParser):
    """A parser that gets its options only when it is used.

    So a system is imported only if the command line names it.

    Attributes:
      fill_fn: adds the options, and the description if it is at hand; called once.
      help_fn: completes the texts of --help, as the command line before it says; called for help
        alone, because it may be slow.
    """

    fill_fn: Callable[[LazyParser], None] | None = None
    help_fn: Callable[[LazyParser, Sequence[str]], None] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        take_negatives(self)
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments, after calling `fill_fn`."""
        self._fill()
        self._words = args or ()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help text, after calling `fill_fn` and `help_fn`."""
        self._fill()
        if self.help_fn is not None:
            help_fn, self.help_fn = self.help_fn, None
            help_fn(self, self._words)
        return super().format_help()

    def _fill(self) -> None:
        if self.fill_fn is not None:
            fill_fn, self.fill_fn = self.fill_fn, None
            fill_fn(self)


def add_verb(subparsers: Any, name: str, summary: str, description: str = "") -> Any:
    """Add a subcommand whose description is shown with its own line breaks; return its parser."""
    return subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_verb_of_few(subparsers: Any, name: str, summary: str, verb: str = "") -> LazyParser:
    """Add a subcommand that the systems describe, under the name `verb`; return its parser."""

    def describe(parser: LazyParser, words: Sequence[str]) -> None:
        texts = (find_system(system).examples.get(verb or name, "") for system in system_names())
        parser.description = (parser.description or "") + "\n".join(filter(None, texts))

    parser: LazyParser = add_verb(subparsers, name, summary)
    parser.help_fn = describe
    return parser


def add_system_verb(
    subparsers: Any,
    verb: str,
    summary: str,
    fill_fn: Callable[[str, LazyParser], None],
    run_fn: Callable[[str, argparse.Namespace], int],
) -> None:
    """Add a verb with a subcommand for each system.

    `fill_fn` adds the description and the options to a system's parser; `run_fn` returns the exit
    status.
    """
    parser = add_verb(subparsers, verb, summary, f"{summary[0].upper()}{summary[1:]}.")
    systems = parser.add_subparsers(
        title="environments", metavar="ENV", required=True, parser_class=LazyParser
    )
    for name in system_names():
        of_system = add_verb(systems, name, summary_of(name))
        of_system.fill_fn = functools.partial(fill_fn, name)
        of_system.set_defaults(run=functools.partial(run_fn, name))


def default_of(system: System) -> str:
    """Return what help says of the policy that a verb takes if none is named."""
    if not system.default_policy:
        return ""
    return f" (default: {system.default_policy}, {system.policies[system.default_policy]})"


def add_seed(parser: argparse.ArgumentParser, of: str) -> None:
    """Add the option --seed; `of` says what it seeds."""
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, metavar="S", help=f"of {of} (default: 0)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout and nothing else"
    )


def add_collect(parser: argparse.ArgumentParser) -> None:
    """Add the options of where to collect; see `collect_of`."""
    from tfrl_systems.drivers.collect import POOLS

    parser.add_argument(
        "--collect",
        choices=tuple(POOLS),
        help="where experience is collected: in this process, by --workers others, or by workers "
        "on a Ray cluster; the outcome does not depend on it",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        metavar="N",
        help="processes that collect (default: one for each processor, of this machine or of the "
        "cluster)",
    )
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT|auto",
        help="with --collect ray: the cluster, which this machine is a node of; auto for the one "
        "that runs here (default: a cluster of this machine alone, as long as the run lasts)",
    )
    parser.add_argument(
        "--chunk-timeout",
        type=whole_number(1),
        metavar="SECONDS",
        help="how long a worker may take for the episodes that it is given at once, before another "
        "replaces it and tries them again (default: 300 or more, as the agent and the environment "
        "need)",
    )


def collect_of(options: argparse.Namespace) -> Collect | None:
    """Return where to collect, as the options say; None if none of them is given.

    Raises:
      UsageError: there is an address, and nothing that it could be of; or a time limit, and no
        worker that it could be for.
      UserError: there is no such cluster.
    """
    from tfrl_systems.drivers.collect import Collect, num_processors_at

    if options.address and options.collect != "ray":
        raise UsageError(
            f"--address: expected it with --collect ray, found {options.address!r} without; add "
            "--collect ray"
        )
    if options.chunk_timeout is not None and options.collect not in ("pipes", "ray"):
        raise UsageError(
            "--chunk-timeout: expected it with --collect pipes or ray, found "
            f"{options.chunk_timeout} without; add one of them"
        )
    if options.collect is None:
        return None if options.workers is None else Collect.with_workers(options.workers)
    if options.collect == "inprocess":
        return Collect()
    if options.address:
        workers = options.workers or num_processors_at(options.address)
    else:
        workers = options.workers or num_processors()
    return Collect(options.collect, workers, options.address, options.chunk_timeout)
