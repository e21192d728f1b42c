"""What `tfrl corpus` does: make a corpus of modules, or describe one."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from environments.inlining.corpus.building import build_corpus
from environments.inlining.corpus.compile_commands import count_kinds
from environments.inlining.corpus.modules import Corpus, describe
from tfrl_systems.reporting import Reporter, format_table

_NUM_NAMED = 20


def build(
    sources: Sequence[str],
    output: pathlib.Path,
    compiler: str,
    jobs: int | None,
    project: str,
    reporter: Reporter,
) -> tuple[dict[str, Any], str]:
    """Build a corpus; see `build_corpus`.

    Returns:
      What `tfrl corpus build --json` prints, and the same for people.
    """
    advance = None

    def on_source(done: int, total: int, name: str) -> None:
        nonlocal advance
        advance = advance or reporter.task("compiling", total)
        advance(1)

    report = build_corpus(sources, output, compiler, jobs, on_source, project=project)
    for failure in report.not_compiled[:_NUM_NAMED]:
        reporter.say(f"not compiled: {failure.name}: {failure.error}")
    if (rest := len(report.not_compiled) - _NUM_NAMED) > 0:
        reporter.say(f"and {rest} more; see {output / 'not_compiled.json'}")
    if report.skipped:
        kinds = count_kinds(report.skipped)
        reporter.say(f"left out, as they compile neither C nor C++: {kinds}")
    not_compiled = [
        {"module": failure.name, "source": failure.source, "error": failure.error}
        for failure in report.not_compiled
    ]
    result = {
        **vars(report),
        "directory": str(report.directory),
        "not_compiled": not_compiled,
        "skipped": dict(report.skipped),
    }
    text = (
        f"{report.directory}: {report.modules} modules ({report.compiled} compiled, "
        f"{report.reused} unchanged); left out: {len(report.not_compiled)} not compiled, "
        f"{len(report.empty)} without functions, {len(report.duplicates)} duplicates; "
        f"{report.seconds:.0f} s"
    )
    return result, text


def info(directory: pathlib.Path) -> tuple[dict[str, Any], str]:
    """Describe a corpus.

    Returns:
      What `tfrl corpus info --json` prints, and the same for people.
    """
    described = describe(Corpus.load(directory))
    rows = [
        _cells(project) for project in [*described["projects"], {**described, "project": "all"}]
    ]
    header = ["project", "modules", "C", "C++", "other", "bitcode bytes"]
    return described, format_table(header, rows)


def _cells(described: Mapping[str, Any]) -> list[str]:
    languages = dict(described["languages"])
    c, cxx = languages.pop("c", 0), languages.pop("c++", 0)
    numbers = [described["modules"], c, cxx, sum(languages.values()), described["size_bytes"]]
    return [described["project"], *(f"{number:,}" for number in numbers)]
