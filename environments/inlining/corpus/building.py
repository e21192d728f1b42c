"""Build a corpus: compile sources to bitcode in parallel and write the directory.

A build can be repeated: it compiles a module again only if its source, a header that it includes,
its options or the compiler changed. The build makes everything in a directory inside the corpus and
moves it into place at the end, so an interrupted build leaves the corpus as it was.

Beside the corpus itself (see modules.py), the build writes two files. `not_compiled.json` names
each source that did not compile, with its first error. `build_state.json` tells the next build
which modules have not changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.corpus import modules as corpus_lib
from environments.inlining.corpus.bitcode_compilers import BitcodeCompiler, find_compiler
from environments.inlining.corpus.compiling import BitcodeFacts, Made, Maker, Progress
from environments.inlining.corpus.sources import gather_units
from environments.inlining.corpus.units import BitcodeUnit, CompileUnit, NotCompiled, Unit

NOT_COMPILED_FILE = "not_compiled.json"
STATE_FILE = "build_state.json"
_BUILDING = ".building"
_FORMAT = 1
DEFAULT_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True)
class BuildReport:
    """What a build did.

    Attributes:
        directory: that of the corpus.
        modules: number of modules in the corpus after the build.
        reused: number of them that had not changed.
        duplicates: names of modules left out because another module has the same bitcode.
        empty: names of modules left out because they define no function.
        not_compiled: sources that gave no module, with the reason.
        seconds: wall-clock time of the build.
        skipped: number of sources that are neither C nor C++, by kind, for instance {".S": 3}.
    """

    directory: pathlib.Path
    modules: int
    reused: int
    duplicates: tuple[str, ...]
    empty: tuple[str, ...]
    not_compiled: tuple[NotCompiled, ...]
    seconds: float
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def compiled(self) -> int:
        """Number of modules that this build made."""
        return self.modules - self.reused


def build_corpus(
    sources: Iterable[str | pathlib.Path],
    output: str | pathlib.Path,
    compiler: str = "embedded",
    jobs: int | None = None,
    progress: Progress | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    project: str = "",
) -> BuildReport:
    """Build a corpus from sources of any kind.

    Args:
        sources: see `sources.gather_units`.
        output: directory of the corpus; made if needed.
        compiler: "embedded", or a clang: a path or a name on PATH.
        jobs: number of compilers that run at the same time; by default one for each processor.
        progress: see `Progress`.
        timeout_s: time limit for one source, in s.
        project: see `sources.gather_units`.

    Raises:
        UserError: if a source or the compiler is not usable, if the output is a directory with
            other files, or if no source gave a module.
    """
    gathered = gather_units(sources, project)
    needs_compiler = any(isinstance(unit, CompileUnit) for unit in gathered.units)
    bitcode_compiler = find_compiler(compiler) if needs_compiler else None
    report = build_units(gathered.units, output, bitcode_compiler, jobs, progress, timeout_s)
    return dataclasses.replace(report, skipped=gathered.skipped)


def build_units(
    units: Sequence[Unit],
    output: str | pathlib.Path,
    compiler: BitcodeCompiler | None,
    jobs: int | None = None,
    progress: Progress | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    num_sources: Mapping[str, int] | None = None,
) -> BuildReport:
    """Build a corpus from units; all else is as in `build_corpus`.

    `num_sources` says how many sources the projects have of which the units are a sample.
    """
    started = time.monotonic()
    # Absolute, because compilers run in other directories.
    output = pathlib.Path(output).absolute()
    with _building(output) as scratch:
        old = _load_state(output)
        maker = Maker(output, scratch, compiler, timeout_s, old)
        results = maker.make_all(units, jobs or os.cpu_count() or 1, progress)
        report = _write(output, scratch, results, compiler, num_sources or {})
    return dataclasses.replace(report, seconds=time.monotonic() - started)


def write_subset(corpus: corpus_lib.Corpus, output: pathlib.Path) -> None:
    """Write some modules of a built corpus as a corpus of their own.

    Args:
        corpus: the modules, as `Corpus.select` returned them.
        output: directory to make. Modules become hard links if the file system allows it.

    Raises:
        UserError: if the output is a directory with other files.
    """
    description = corpus_lib.read_description(corpus.directory)
    names = [module.name for module in corpus.modules]
    facts = dict(description.get(corpus_lib.FACTS_KEY, {}))
    recorded = facts.get("modules", {})
    facts["modules"] = {name: recorded[name] for name in names if name in recorded}
    with _building(output) as scratch:
        before = _module_names(output)
        for module in corpus.modules:
            target = output / f"{module.name}.bc"
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(module.path, scratch / "module.bc")
            except OSError:
                shutil.copyfile(module.path, scratch / "module.bc")
            (scratch / "module.bc").replace(target)
            # If both are links to the same file, `replace` leaves both of them.
            (scratch / "module.bc").unlink(missing_ok=True)
        description.update({"modules": names, corpus_lib.FACTS_KEY: facts})
        _write_json(scratch, output / corpus_lib.DESCRIPTION_FILE, description)
        for name in before - set(names):
            (output / f"{name}.bc").unlink(missing_ok=True)


def _write(
    output: pathlib.Path,
    scratch: pathlib.Path,
    results: Sequence[Made],
    compiler: BitcodeCompiler | None,
    num_sources: Mapping[str, int],
) -> BuildReport:
    """Move the modules into place, then write the files that describe them."""
    modules, duplicates, empty = _sort_out(results)
    failed = tuple(
        NotCompiled(result.unit.name, result.unit.source, result.error)
        for result in results
        if result.error
    )
    _write_json(scratch, output / NOT_COMPILED_FILE, list(map(dataclasses.asdict, failed)))
    if not modules:
        reason = f"{failed[0].source}: {failed[0].error}" if failed else "they define no function"
        raise UserError(
            f"expected at least one module from {len(results)} sources, found none ({reason}); "
            f"see {output / NOT_COMPILED_FILE}"
        )
    before = _module_names(output)
    by_name = {module.unit.name: module for module in modules}
    for name, module in by_name.items():
        _place(module, output / f"{name}.bc", scratch)
    facts = {name: _facts_entry(module) for name, module in by_name.items()}
    state = {
        name: {
            "key": module.key,
            "dependencies": module.dependencies,
            "facts": dataclasses.asdict(module.facts),
        }
        for name, module in by_name.items()
        if module.key and module.facts
    }
    _write_json(scratch, output / STATE_FILE, {"format": _FORMAT, "modules": state})
    built_by = {"compiler": compiler.version if compiler else "", "format": _FORMAT}
    sampled = {corpus_lib.SOURCES_KEY: dict(num_sources)} if num_sources else {}
    description = {
        "modules": list(by_name),
        "has_thinlto": False,
        corpus_lib.COMMAND_KEY: corpus_lib.UNSPECIFIED_COMMAND,
        corpus_lib.FACTS_KEY: {**built_by, "modules": facts, **sampled},
    }
    _write_json(scratch, output / corpus_lib.DESCRIPTION_FILE, description)
    for name in before - by_name.keys():
        (output / f"{name}.bc").unlink(missing_ok=True)
    reused = sum(module.reused for module in modules)
    return BuildReport(output, len(modules), reused, duplicates, empty, failed, 0.0)


def _sort_out(results: Iterable[Made]) -> tuple[list[Made], tuple[str, ...], tuple[str, ...]]:
    """Return the modules to keep, the names of duplicates, and of modules without functions."""
    modules: dict[str, Made] = {}
    duplicates, empty = [], []
    for result in results:
        if result.facts is None:
            continue
        if result.facts.functions == 0:
            empty.append(result.unit.name)
        elif result.facts.sha256 in modules:
            duplicates.append(result.unit.name)
        else:
            modules[result.facts.sha256] = result
    return list(modules.values()), tuple(duplicates), tuple(empty)


def _facts_entry(module: Made) -> dict[str, Any]:
    language = module.unit.language if isinstance(module.unit, CompileUnit) else None
    assert module.facts is not None
    language = language or corpus_lib.language_of(module.facts.source)
    return {"language": language, **dataclasses.asdict(module.facts)}


def _place(module: Made, target: pathlib.Path, scratch: pathlib.Path) -> None:
    if module.reused or module.path is None:
        return
    path = module.path
    if isinstance(module.unit, BitcodeUnit):
        path = scratch / "taken_over.bc"
        shutil.copyfile(module.path, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)


def _module_names(output: pathlib.Path) -> set[str]:
    """Return the names of the modules that an earlier build left in the corpus."""
    try:
        return set(corpus_lib.read_description(output)["modules"])
    except UserError:
        return set()


def _load_state(output: pathlib.Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the state that an earlier build wrote; empty if damaged or in another format."""
    try:
        state = json.loads((output / STATE_FILE).read_bytes())
        for entry in state["modules"].values():
            BitcodeFacts(**entry["facts"])
            if entry.keys() != {"key", "dependencies", "facts"}:
                return {}
        return state["modules"] if state["format"] == _FORMAT else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write_json(scratch: pathlib.Path, path: pathlib.Path, value: Any) -> None:
    """Write a file in one step, so that readers see either the old file or the new one."""
    temporary = scratch / path.name
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


@contextlib.contextmanager
def _building(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make the output directory and, inside it, a locked directory for this build alone."""
    if output.exists() and not output.is_dir():
        raise UserError(f"expected a directory for the corpus, found a file at {output}")
    scratch = output / _BUILDING
    if scratch.is_symlink():
        # What is in it is removed, and would be removed where the link leads.
        raise UserError(f"expected a directory {scratch}, found a link; remove it")
    foreign = output.is_dir() and any(
        path.name not in (_BUILDING, NOT_COMPILED_FILE) for path in output.iterdir()
    )
    if foreign and not (output / corpus_lib.DESCRIPTION_FILE).is_file():
        raise UserError(
            f"expected an empty directory or a corpus at {output}, found other files; "
            "name another with -o"
        )
    try:
        scratch.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"expected to write to {output}, found: {error.strerror}") from None
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"expected {output} for this build alone, found another build at work; wait for it"
        ) from None
    try:
        # A killed build may have left files.
        for path in scratch.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield scratch
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = (
            "free some space, then build again" if full else "make it writable, or name another"
        )
        raise UserError(f"expected to write to {output}, found: {error}; {remedy}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(descriptor)
