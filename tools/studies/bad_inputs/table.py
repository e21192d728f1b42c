"""The table of verbs: which argument takes what kind of input, and what must hold."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping

from tools.studies.bad_inputs.damage import (
    EITHER,
    GIVEN,
    PERHAPS,
    USAGE,
    Content,
    Damage,
    write,
)
from tools.studies.bad_inputs.kinds import KINDS, MODEL, OPTIMIZER, SOURCE, TASO_RULE

# Files of each case, beside what is damaged. In bin/ there is no compiler.
_BESIDE: Mapping[str, Content] = {
    "model.onnx": MODEL,
    "good.pb": TASO_RULE,
    "a.c": SOURCE,
    "file": b"",
    "loop": lambda path: path.symlink_to("loop"),
    "policy": OPTIMIZER,
    "bin": {
        name: lambda path: path.symlink_to(f"/bin/{path.name}") for name in ("true", "sh", "cp")
    },
}


@dataclasses.dataclass(frozen=True)
class Row:
    """An argument of a verb that takes some kind of input.

    Attributes:
      command: the command line without `tfrl`; {} stands for the argument. It may begin with
        variables. Paths in it are relative to the case's directory.
      kind: a key of `KINDS`.
      at: where the input is, in the case's directory; with "", at the name that {} gets.
      status: the right exit statuses; None for those of the damage.
      leaves: names, as regular expressions, that may be new afterwards or have changed; if the
        command succeeds, what begins with "out", too.
      reports: whether what is wrong is told in the verb's own report, JSON on stdout.
    """

    command: str
    kind: str = "nothing"
    at: str = ""
    status: tuple[int, ...] | None = None
    leaves: str = ""
    reports: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """A command with one thing wrong in it."""

    row: Row
    damage: Damage

    @property
    def what(self) -> str:
        """What is wrong; no two cases of a verb say the same."""
        return f"{self.row.command[:230]}, {self.row.at}, {self.damage.what}"

    @property
    def status(self) -> tuple[int, ...]:
        """The right exit statuses."""
        return self.row.status or self.damage.status

    def parsed(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables that the command begins with, and its words."""
        words = [word.replace("{}", self.damage.name) for word in self.row.command.split(" ")]
        environment = {}
        while re.match("[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        return environment, words

    def is_possible(self) -> bool:
        """Return whether the damage can be tried: what has a place of its own has no names."""
        is_in_place = self.damage.name.removeprefix("./") == GIVEN
        # No system passes a zero byte on in a variable.
        return (is_in_place or not self.row.at) and "\0" not in "".join(self.parsed()[0].values())

    def make_files(self, directory: pathlib.Path) -> None:
        """Make the case's files."""
        place = self.row.at or self.damage.name
        contents = {name: content for name, content in _BESIDE.items() if name != self.row.at}
        if self.damage.content is not None:
            contents[place] = self.damage.content
        for name, content in contents.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            write(content, directory / name)


_SEARCH = "--no-measure --objective analytic --seconds 1"
_OPTIMIZE = f"optimize model.onnx -o out.onnx {_SEARCH}"
_TRAIN = "train learn_to_optimize --agent ppo --function sphere --workdir run"
_TINY = (f"{_TRAIN} --iterations 1 --set num_chunks=1 --set episodes_per_chunk=2 "
         "--set hidden_sizes=2 --collect inprocess")  # fmt: skip
_GENERATE = ("rules generate -o out.json --vocabulary order --max-size 1 --instances 1 --seeds 1 "
             "--without-written")  # fmt: skip
_CORPUS = "corpus build {} -o out --jobs 1"
_INLINING = "bench inlining --modules 1 --rounds 1 --workers 1 --huge-calls 100"
_GRAPHS = "bench tensor_graphs --steps 1"
# Nothing can be steered; the command runs as it would alone.
_PLAIN = "build --policy=default --compiler=/bin/true --json"
_NEVER = "build --policy=never --json -- /bin/true"
_CACHES = ("", "/compiles-3.db", "/compiles-3.db-journal", "/costs-5.db", "/verified_rules-1.db",
           "/plugins", "/plugins/.lock")  # fmt: skip
_NO_CACHES = ("XDG_CACHE_HOME=file", "XDG_CACHE_HOME=file/cache", "XDG_CACHE_HOME=/dev/zero",
              "XDG_CACHE_HOME=/proc/nowhere", f"XDG_CACHE_HOME=/{'n' * 5000}", "HOME=",
              "HOME=/no/such/home")  # fmt: skip
ROWS: Mapping[str, list[Row]] = {
    "rules generate": [
        Row(f"{_GENERATE} --reuse={{}}", "rules"),
        Row(_GENERATE.replace("out.json", "{}"), "output"),
    ],
    "rules verify": [Row("rules verify {}", "rules")],
    "rules import": [
        Row("rules import {} -o out.json", "TASO's rules"),
        Row("rules import good.pb -o {}", "output"),
    ],
    "rules list": [Row("rules list {}", "rules")],
    "corpus info": [Row("corpus info {}", "corpus")],
    "corpus build": [
        Row(_CORPUS, "path of a source", leaves="out"),
        *(Row(_CORPUS.format(name), kind, name, leaves="out") for name, kind in (
            ("a.c", "source"), ("a.bc", "bitcode"), ("compile_commands.json", "compile commands"),
        )),
        Row(f"{_CORPUS.format('a.c')} --compiler={{}}", "compiler", status=EITHER, leaves="out"),
        Row("corpus build a.c -o {}", "output directory"),
    ],
    "optimize": [
        Row(f"optimize {{}} -o out.onnx {_SEARCH}", "model"),
        *(Row(f"{_OPTIMIZE} --{name}={{}}", kind) for name, kind in (
            ("inputs", "arrays"), ("rules", "rules"), ("policy", "optimizer"),
            ("report", "output"), ("checkpoint", "output"),
        )),
        Row(f"optimize model.onnx -o {{}} {_SEARCH}", "output"),
    ],
    "train": [
        Row(f"{_TINY} --function={{}}", "function"),
        Row(_TINY, "other files", "run"),
        Row("train inlining --agent bc_max --workdir run --corpus={}", "corpus"),
        Row(f"{_TINY} --workdir={{}}", "output directory"),
    ],
    "evaluate": [
        Row("evaluate learn_to_optimize --policy={}", "optimizer"),
        Row("evaluate inlining --corpus corpus --policy={}", "decisions"),
        Row("evaluate learn_to_optimize --policy=random --function={}", "function"),
        Row("evaluate inlining --policy default --corpus={}", "corpus"),
    ],
    "export": [
        *(Row(f"export --policy {{}} --format {name} -o out", kind, leaves="out") for name, kind in
          (("onnx", "optimizer"), ("mlgo", "decisions"), ("clang-plugin", "decisions"))),
        Row("export --policy policy --format onnx -o {}", "output"),
        Row("export --policy default --format clang-plugin -o out --compiler={}", "compiler"),
    ],
    "build": [
        Row("build --policy={} --compiler=/bin/true -- true", "decisions"),
        Row(f"{_PLAIN} --compare={{}} -- true", "directory", status=EITHER),
        # What has no format that the system knows is given to a shell by some, and fails there.
        Row(f"{_PLAIN} -- {{}}", "program", status=USAGE),
        *(Row(command, "compiler", status=(0,), reports=True) for command in (
            "build --policy=never --json --compiler={} -- true",
            f"PATH=bin CC={{}} {_NEVER}", f"PATH=bin CXX={{}} {_NEVER}",
        )),
        *(Row(f"{variables} {_NEVER}", status=(0,), reports=True) for variables in (
            "PATH=", "PATH=/no/such/directory:/bin", *(f"PATH=bin {name}" for name in _NO_CACHES),
        )),
        *(Row(f"PATH=bin TMPDIR={place} {_NEVER}", status=(0, 1), reports=True)
          for place in ("nowhere", "file", "/proc")),
    ],
    "bench": [
        *(Row(f"{_INLINING} --{name}={{}}", kind) for name, kind in (
            ("corpus", "corpus"), ("policy", "decisions"), ("compiler", "compiler"),
        )),
        Row(f"{_GRAPHS} --model={{}}", "model"),
        Row(f"{_GRAPHS} --model=bert-tiny --rules={{}}", "rules"),
    ],
    # What is damaged there is begun anew.
    "cache info": [
        *(Row("cache info --json", "cache", f"../home/.cache/tfrl{name}", (0,), reports=True)
          for name in _CACHES),
        *(Row(f"{place} cache info --json", status=(0,), reports=True) for place in _NO_CACHES),
    ],
    "cache clear": [
        Row("cache clear", "cache", f"../home/.cache/tfrl{name}", PERHAPS) for name in _CACHES
    ],
    "doctor": [
        Row("PATH=bin doctor --json --cache={}", "cache", "", (0, 1, 2),
            "(given|file|nowhere|two\nlines|name-..).*", reports=True),
        *(Row("PATH=bin doctor --json", "compiler", f"bin/clang{end}", PERHAPS, reports=True)
          for end in ("", "-17", "-19", "-22", "-23")),
        *(Row(f"{variables} doctor --json", status=PERHAPS, reports=True) for variables in (
            *(f"PATH=bin {place}" for place in _NO_CACHES), "PATH=", "PATH=/no/such/directory",
            *(f"PATH=bin TMPDIR={place}" for place in ("nowhere", "/proc", "/tmp/" + "n" * 200)),
        )),
    ],
}  # fmt: skip


def cases(verb: str, seed: int) -> list[Case]:
    """Return the cases of a verb; the seed decides the damage."""
    every = [Case(row, damage) for row in ROWS[verb] for damage in KINDS[row.kind](seed)]
    return [case for case in every if case.is_possible()]
