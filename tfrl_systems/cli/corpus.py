"""The verb `tfrl corpus`, which makes and describes corpora of modules."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import path_of_file, whole_number
from tfrl_systems.experiments.records import implementation_of
from tfrl_systems.reporting import Terminal


def add_parser(subparsers: Any) -> None:
    """Add `corpus` to the verbs."""
    corpus = shared.add_verb(
        subparsers, "corpus", "make and describe corpora", "Makes and describes corpora."
    )
    verbs = corpus.add_subparsers(title="verbs", metavar="VERB", required=True)
    build = shared.add_verb_of_few(verbs, "build", "compile sources to bitcode", "corpus build")
    build.add_argument("sources", nargs="+", metavar="SOURCE", help="what to compile; see above")
    build.add_argument(
        "-o", dest="output", type=path_of_file, required=True, metavar="DIR", help="the corpus"
    )
    build.add_argument(
        "--compiler",
        default="embedded",
        metavar="embedded|CLANG",
        help="the clang that came with the installation, or one of version 17 or newer "
        "(default: embedded)",
    )
    build.add_argument(
        "--jobs",
        type=whole_number(1),
        metavar="N",
        help="compilers that run at the same time (default: one for each processor)",
    )
    build.add_argument(
        "--project", default="", metavar="NAME", help="the project of all SOURCEs (see above)"
    )
    shared.add_json(build)
    build.set_defaults(run=run_build)
    info = shared.add_verb_of_few(verbs, "info", "describe a corpus", "corpus info")
    info.add_argument("corpus", type=path_of_file, metavar="DIR", help="the corpus")
    shared.add_json(info)
    info.set_defaults(run=run_info)


def run_build(options: argparse.Namespace) -> int:
    """Build a corpus as the command line says."""
    with Terminal() as terminal:
        result, text = implementation_of("corpus").build(
            options.sources,
            options.output,
            options.compiler,
            options.jobs,
            options.project,
            terminal,
        )
    show_result(options, result, text)
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Describe a corpus."""
    show_result(options, *implementation_of("corpus").info(options.corpus))
    return 0
