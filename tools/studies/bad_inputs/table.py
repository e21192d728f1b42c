"""The table of damages and verbs: which argument takes what kind of input, and the cases of it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tools.studies.bad_inputs import commands, contents, models, runs, sources
from tools.studies.bad_inputs.damage import (
    EITHER,
    FAILURE,
    GIVEN,
    PERHAPS,
    USAGE,
    Damage,
    MakeFn,
    any_file,
    nothing,
    outputs,
    writer,
)
from tools.studies.bad_inputs.policies import DECISIONS, OPTIMIZER

KINDS: Mapping[str, Callable[[int], Iterable[Damage]]] = {
    "no directory": lambda seed: any_file(b"", seed, without=("a directory",)),
    "rules": contents.rules,
    "TASO's rules": contents.taso,
    "model": models.models,
    "inputs": models.inputs,
    "corpus": contents.corpora,
    "policy": OPTIMIZER.damages,
    "decisions": DECISIONS.damages,
    "function": contents.functions,
    "program": contents.no_programs,
    "compiler": contents.compilers,
    "path of a source": sources.paths_of_sources,
    "source": sources.sources,
    "bitcode": sources.bitcode,
    "compile commands": sources.databases,
    "database": contents.database,
    "image": contents.image,
    "CMake's cache": lambda seed: any_file(b"CMAKE_C_COMPILER:FILEPATH=/no/such\n", seed),
    "output": lambda seed: outputs(),
    "output directory": lambda seed: outputs(is_directory=True),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A command with one thing wrong in it, and how it should end.

    Attributes:
      what: what is wrong; no two cases of a verb say the same.
      words: the command line without `tfrl`; paths in it are relative to the case's directory.
      make_fn: makes the case's files in its directory, which is empty before.
      status: the right exit statuses.
      leaves: names in the case's directory that may be new afterwards.
      environment: variables of the case; it runs in its directory.
      reports: whether what is wrong is told in the verb's own report, JSON on stdout.
    """

    what: str
    words: tuple[str, ...]
    make_fn: MakeFn = nothing
    status: tuple[int, ...] = FAILURE
    leaves: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reports: bool = False


def parsed(command: str, argument: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that a command begins with, and its words; {} is the argument."""
    words = [word.replace("{}", argument) for word in command.split(" ")]
    environment = {}
    while re.match("[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    return environment, tuple(words)


@dataclasses.dataclass(frozen=True)
class Row:
    """An argument of a verb that takes some kind of input.

    Attributes:
      argument: what it is called in the cases.
      command: the command line; {} stands for the argument.
      kind: a key of `KINDS`.
      at: where the input is, in the case's directory; with "", at the name that {} gets.
      beside: other files of the case: name -> content, or what makes it.
      leaves: names that may be new afterwards, whatever the end.
      writes: those that may be new if the damage may leave a right input.
      others: other attributes of the cases.
    """

    argument: str
    command: str
    kind: str
    at: str = ""
    beside: Mapping[str, bytes | MakeFn] = dataclasses.field(default_factory=dict)
    leaves: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def cases(self, seed: int) -> Iterator[Case]:
        """Yield a case for each damage of the kind."""
        for damage in KINDS[self.kind](seed):
            if self.at and damage.name.removeprefix("./") != GIVEN:
                continue
            environment, words = parsed(self.command, damage.name)
            if any("\0" in value for value in environment.values()):
                continue  # no system passes it on
            leaves = self.leaves + (self.writes if 0 in damage.status else ())
            case = Case(
                f"{self.argument}: {damage.what}", words, self.maker(damage), damage.status,
                leaves, environment,
            )  # fmt: skip
            yield dataclasses.replace(case, **self.others)

    def maker(self, damage: Damage) -> MakeFn:
        """Return what makes the files of a case."""

        def make(directory: pathlib.Path) -> None:
            for name, content in self.beside.items():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                make_fn = writer(content) if isinstance(content, bytes) else content
                make_fn(directory / name)
            if self.at:
                (directory / self.at).parent.mkdir(parents=True, exist_ok=True)
            if damage.make_fn is not nothing:  # a name that is wrong may lead out of the directory
                damage.make_fn(directory / (self.at or damage.name))

        return make


_SEARCH = "--no-measure --objective analytic --seconds 1"
_OPTIMIZE = f"optimize model.onnx -o out.onnx {_SEARCH}"
_GENERATE = "--vocabulary order --max-size 1 --instances 1 --seeds 1 --without-written"
_TAKE = "-o out --jobs 1"
_INLINING = "bench inlining --modules 1 --rounds 1 --workers 1 --huge-calls 100"
_GRAPHS = "bench tensor_graphs --steps 1"
_EXPORT = "export --policy {} --format"
# Nothing can be steered; the command runs as it would alone.
_PLAIN = "build --policy=default --compiler=/bin/true --json"
_MODEL: Mapping[str, bytes | MakeFn] = {"model.onnx": models.good().SerializeToString()}
_A_SOURCE: Mapping[str, bytes | MakeFn] = {"a.c": sources.SOURCE}
_A_POLICY: Mapping[str, bytes | MakeFn] = {"policy": OPTIMIZER.maker()}
# Programs beside which there is no compiler.
_BIN: Mapping[str, bytes | MakeFn] = {
    f"bin/{name}": lambda path: path.symlink_to(f"/bin/{path.name}")
    for name in ("true", "sh", "cp")
}
_AS_ALONE: Mapping[str, Any] = {"status": (0,), "reports": True}
_DOCTOR: Mapping[str, Any] = {"status": PERHAPS, "reports": True}
_BEGUN = tuple(
    f"{name}{rest}"
    for name in ("given", "file", "nowhere", "two\nlines", os.fsdecode(b"name-\xff\xfe"))
    for rest in ("", "-journal", ".damaged")
)
_CACHES = {
    "the cache directory": ".",
    "compiles": "compiles-3.db",
    "its journal": "compiles-3.db-journal",
    "costs": "costs-5.db",
    "verified rules": "verified_rules-1.db",
    "plugins": "plugins",
    "the lock of the plugins": "plugins/.lock",
}


def _caches(command: str, **others: Any) -> list[Row]:
    """Return a row for each place of the cache; what is damaged there is begun anew."""
    return [
        Row(place, command, "database", f"../home/.cache/tfrl/{name}", others=others)
        for place, name in _CACHES.items()
    ]


ROWS: Mapping[str, list[Row]] = {
    "rules generate": [
        Row("--reuse", f"rules generate -o out.json {_GENERATE} --reuse={{}}", "rules"),
        Row("--output", f"rules generate -o {{}} {_GENERATE}", "output"),
    ],
    "rules verify": [Row("FILE", "rules verify {}", "rules")],
    "rules import": [
        Row("FILE.pb", "rules import {} -o out.json", "TASO's rules", writes=("out.json",)),
        Row("--output", "rules import good.pb -o {}", "output",
            beside={"good.pb": contents.taso_file()}),
    ],
    "rules list": [Row("FILE", "rules list {}", "rules")],
    "corpus info": [Row("DIR", "corpus info {}", "corpus")],
    "corpus build": [
        Row("SOURCE", f"corpus build {{}} {_TAKE}", "path of a source", leaves=("out",)),
        Row("a.c", f"corpus build a.c {_TAKE}", "source", "a.c", leaves=("out",)),
        Row("a.bc", f"corpus build a.bc {_TAKE}", "bitcode", "a.bc", leaves=("out",)),
        Row("compile_commands.json", f"corpus build compile_commands.json {_TAKE}",
            "compile commands", "compile_commands.json", _A_SOURCE, leaves=("out",)),
        Row("--compiler", f"corpus build a.c {_TAKE} --compiler={{}}", "compiler",
            beside=_A_SOURCE, leaves=("out",), others={"status": EITHER}),
        Row("-o", "corpus build a.c -o {}", "output directory", beside=_A_SOURCE),
    ],
    "optimize": [
        Row("MODEL", f"optimize {{}} -o out.onnx {_SEARCH}", "model", writes=("out.onnx",)),
        Row("--output", f"optimize model.onnx -o {{}} {_SEARCH}", "output", beside=_MODEL),
        Row("--inputs", f"{_OPTIMIZE} --inputs={{}}", "inputs", beside=_MODEL),
        Row("--rules", f"{_OPTIMIZE} --rules={{}}", "rules", beside=_MODEL),
        Row("--policy", f"{_OPTIMIZE} --policy={{}}", "policy", beside=_MODEL),
        Row("--report", f"{_OPTIMIZE} --report={{}}", "output", beside=_MODEL),
        Row("--checkpoint", f"{_OPTIMIZE} --checkpoint={{}}", "output", beside=_MODEL),
    ],
    "train": [
        Row("--function", f"{runs.TRAIN} --workdir run --function={{}}", "function"),
        Row("--corpus", "train inlining --agent bc_max --workdir run --corpus={}", "corpus"),
        Row("--workdir", f"{runs.TRAIN} --workdir={{}}", "output directory"),
    ],
    "evaluate": [
        Row("--policy", "evaluate learn_to_optimize --policy={}", "policy"),
        Row("inlining --policy", "evaluate inlining --corpus corpus --policy={}", "decisions"),
        Row("--function", "evaluate learn_to_optimize --policy=random --function={}", "function"),
        Row("--corpus", "evaluate inlining --policy default --corpus={}", "corpus"),
    ],
    "export": [
        Row("--policy", f"{_EXPORT} onnx -o out", "policy", leaves=("out",)),
        Row("mlgo: --policy", f"{_EXPORT} mlgo -o out", "decisions", leaves=("out",)),
        Row("plugin: --policy", f"{_EXPORT} clang-plugin -o out", "decisions", leaves=("out",)),
        Row("--output", "export --policy policy --format onnx -o {}", "output", beside=_A_POLICY),
        Row("--compiler", "export --policy default --format clang-plugin -o out --compiler={}",
            "compiler"),
    ],
    "build": [
        Row("--policy", "build --policy={} --compiler=/bin/true -- true", "decisions"),
        Row("--compare", f"{_PLAIN} --compare={{}} -- true", "no directory",
            others={"status": EITHER}),
        Row("--compiler", "build --policy=never --json --compiler={} -- true", "compiler",
            others=_AS_ALONE),
        # What has no format that the system knows is given to a shell by some, and fails there.
        Row("COMMAND", f"{_PLAIN} -- {{}}", "program", others={"status": USAGE}),
        *(
            Row(name, f"PATH=bin {name}={{}} build --policy=never --json -- true", "compiler",
                beside=_BIN, others=_AS_ALONE)
            for name in ("CC", "CXX")
        ),
        Row("CMakeCache.txt", "PATH=bin build --policy=never --json -- true", "CMake's cache",
            "CMakeCache.txt", _BIN, others=_AS_ALONE),
        Row("an image", f"{_PLAIN} -- cp --sparse=always given given.out", "image", "given",
            leaves=("given.out",), others={"status": (0, 1), "reports": True}),
    ],
    "bench": [
        Row("--corpus", f"{_INLINING} --corpus={{}}", "corpus"),
        Row("--policy", f"{_INLINING} --policy={{}}", "decisions"),
        Row("--compiler", f"{_INLINING} --compiler={{}}", "compiler"),
        Row("--model", f"{_GRAPHS} --model={{}}", "model"),
        Row("--rules", f"{_GRAPHS} --model=bert-tiny --rules={{}}", "rules"),
    ],
    "cache info": _caches("cache info --json", status=(0,), reports=True),
    "cache clear": _caches("cache clear", status=PERHAPS),
    "doctor": [
        Row("--cache", "PATH=bin doctor --json --cache={}", "database", beside=_BIN, leaves=_BEGUN,
            others={**_DOCTOR, "status": (0, 1, 2)}),
        *(
            Row(name, "PATH=bin doctor --json", "compiler", f"bin/{name}", others=_DOCTOR)
            for name in ("clang", "clang-17", "clang-19", "clang-22")
        ),
    ],
}  # fmt: skip


# Other files of the commands in `commands.py`.
_BESIDE: Mapping[str, Mapping[str, bytes | MakeFn]] = {
    "optimize": _MODEL,
    "evaluate": _A_POLICY,
    "export": _A_POLICY,
    "bench": _A_POLICY,
    **{verb: {**_BIN, "file": b""} for verb in ("build", "cache info", "doctor")},
}


def cases(verb: str, seed: int, scratch: pathlib.Path) -> list[Case]:
    """Return the cases of a verb.

    Args:
      verb: its name.
      seed: of the damage.
      scratch: a directory for what several cases need.
    """
    damaged = [case for row in ROWS[verb] for case in row.cases(seed)]
    wrong: list[tuple[str, str, tuple[int, ...]]]
    wrong = [(f"usage: {words[:200]}", words, USAGE) for words in commands.USAGE.get(verb, ())]
    wrong += [(what, words, USAGE) for what, words in commands.numbers(verb)]
    wrong += [(words[:200], words, FAILURE) for words in commands.FAILING.get(verb, ())]
    reporting = commands.REPORTING.get(verb, {})
    wrong += [(words[:200], words, status) for words, status in reporting.items()]
    beside = Row("", "", "", beside=_BESIDE.get(verb, {}))
    for what, words, status in wrong:
        environment, line = parsed(words)
        make_fn = beside.maker(Damage("", nothing))
        case = Case(what, line, make_fn, status, (), environment, words in reporting)
        damaged.append(case)
    return damaged + (list(_resumed(seed, scratch)) if verb == "train" else [])


def _resumed(seed: int, scratch: pathlib.Path) -> Iterator[Case]:
    again = (*runs.TRAIN.split(), "--workdir", "run", "--resume")
    for damage in runs.damaged_runs(seed, scratch):
        row = Row("--resume", "", "", at="run")
        yield Case(f"--resume: {damage.what}", again, row.maker(damage))
    whole = Row("", "", "", at="run").maker(Damage("", runs.trained(scratch)))
    yield Case("a run, without --resume", again[:-1], whole)
    yield Case("another seed", (*again, "--seed", "7"), whole)
    yield Case("another function", (*again, "--function", "ackley"), whole)
    yield Case("other files", again[:-1], lambda path: _other_files(path / "run"))


def _other_files(directory: pathlib.Path) -> None:
    directory.mkdir()
    (directory / "precious").write_text("a file")
