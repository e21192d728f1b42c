"""The verb `tfrl corpus`, which makes and describes corpora of modules."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import say, show, show_json
from tfrl_systems.experiments.arguments import path_of_file, whole_number
from tfrl_systems.reporting import Terminal, format_table

_NAMED_ON_STDERR = 20


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
    from environments.inlining.corpus.building import BuildReport, build_corpus
    from environments.inlining.corpus.compile_commands import count_kinds

    with Terminal() as progress:
        advance = None

        def on_source(done: int, total: int, name: str) -> None:
            nonlocal advance
            advance = advance or progress.task("compiling", total)
            advance(1)

        report: BuildReport = build_corpus(
            options.sources,
            options.output,
            options.compiler,
            options.jobs,
            on_source,
            project=options.project,
        )
    for failure in report.not_compiled[:_NAMED_ON_STDERR]:
        say(f"not compiled: {failure.name}: {failure.error}")
    if len(report.not_compiled) > _NAMED_ON_STDERR:
        rest = len(report.not_compiled) - _NAMED_ON_STDERR
        say(f"and {rest} more; see {options.output / 'not_compiled.json'}")
    if report.skipped:
        say(f"left out, as they compile neither C nor C++: {count_kinds(report.skipped)}")
    if options.json:
        show_json(_report_json(report))
        return 0
    show(
        f"{report.directory}: {report.modules} modules ({report.compiled} compiled, "
        f"{report.reused} unchanged); left out: {len(report.not_compiled)} not compiled, "
        f"{len(report.empty)} without functions, {len(report.duplicates)} duplicates; "
        f"{report.seconds:.0f} s"
    )
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Describe a corpus."""
    from environments.inlining.corpus.modules import Corpus, describe

    described = describe(Corpus.load(options.corpus))
    if options.json:
        show_json(described)
        return 0
    total = {**described, "project": "all"}
    rows = [_cells(project) for project in [*described["projects"], total]]
    show(format_table(["project", "modules", "C", "C++", "other", "bitcode bytes"], rows))
    return 0


def _report_json(report: Any) -> dict[str, Any]:
    return {
        "directory": str(report.directory),
        "modules": report.modules,
        "compiled": report.compiled,
        "reused": report.reused,
        "duplicates": list(report.duplicates),
        "empty": list(report.empty),
        "not_compiled": [
            {"module": failure.name, "source": failure.source, "error": failure.error}
            for failure in report.not_compiled
        ],
        "skipped": dict(report.skipped),
        "seconds": report.seconds,
    }


def _cells(described: Mapping[str, Any]) -> list[str]:
    languages = dict(described["languages"])
    c, cxx = languages.pop("c", 0), languages.pop("c++", 0)
    numbers = [described["modules"], c, cxx, sum(languages.values()), described["size_bytes"]]
    return [described["project"], *(f"{number:,}" for number in numbers)]
