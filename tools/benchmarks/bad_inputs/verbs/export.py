"""Bad inputs of `tfrl export`."""

from __future__ import annotations

import os
import pathlib

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import Case, MakeFn, usage
from tools.benchmarks.bad_inputs.verbs import policies


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl export`."""

    def words(policy: str, output: str = "out", kind: str = "onnx") -> tuple[str, ...]:
        return ("export", f"--policy={policy}", "--format", kind, f"--output={output}")

    found = [
        *policies.policies("--policy", words, seed),
        *damage.outputs("--output", lambda path: words("policy", path), others_fn=policies.good),
        *usage(
            "export",
            ("nothing", ""),
            ("no policy", "--format onnx -o out"),
            ("no format", "--policy policy -o out"),
            ("no output", "--policy policy --format onnx"),
            ("an unknown format", "--policy policy --format zip -o out"),
        ),
    ]
    for kind in ("mlgo", "clang-plugin"):
        found += [
            Case(f"{kind}: a policy of another system", words("policy", kind=kind), policies.good),
            Case(f"{kind}: an empty directory", words("policy", kind=kind), _directory),
            Case(f"{kind}: cost< of no number", words("cost<many", kind=kind)),
            Case(f"{kind}: a policy that is missing", words("nowhere", kind=kind)),
        ]
    found.append(Case("mlgo: a policy without a model", words("default", kind="mlgo")))
    found.append(Case("onnx: a named policy", words("random")))
    for what, (name, make_fn) in _COMPILERS.items():
        plugin = words("default", kind="clang-plugin")
        found.append(Case(f"--compiler: {what}", (*plugin, f"--compiler={name}"), make_fn))
    return found


def _directory(directory: pathlib.Path) -> None:
    (directory / "policy").mkdir()


def _program(text: str) -> MakeFn:
    def make(directory: pathlib.Path) -> None:
        path = directory / "clang"
        path.write_text(text)
        path.chmod(0o755)

    return make


_COMPILERS: dict[str, tuple[str, MakeFn]] = {
    "missing": ("no-such-clang", lambda _: None),
    "empty": ("", lambda _: None),
    "a zero byte": ("a\0b", lambda _: None),
    "a directory": ("./clang", lambda path: (path / "clang").mkdir()),
    "a pipe": ("./clang", lambda path: os.mkfifo(path / "clang")),
    "a file that is no program": (
        "./clang", lambda path: (path / "clang").write_text("text") and None,
    ),
    "a program of another format": ("./clang", _program("\x7fELF")),
    "no compiler": ("/bin/true", lambda _: None),
    "another compiler": ("gcc", lambda _: None),
    "a program that fails": ("./clang", _program("#!/bin/sh\necho no >&2\nexit 1\n")),
    "a program that says it is old": (
        "./clang", _program("#!/bin/sh\necho 'clang version 3.8.0'\n"),
    ),
    "a program that is not UTF-8": ("./clang", _program("#!/bin/sh\nprintf '\\377\\376'\n")),
    "a link to nothing": ("./clang", lambda path: (path / "clang").symlink_to("nowhere")),
}  # fmt: skip
