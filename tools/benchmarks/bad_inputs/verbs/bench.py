"""Bad inputs of `tfrl bench`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import Case, numbers, usage, with_file
from tools.benchmarks.bad_inputs.verbs import models, policies, programs
from tools.benchmarks.bad_inputs.verbs.corpus import corpora

_GRAPHS = ("bench", "tensor_graphs", "--steps", "1")
_RULES = (*_GRAPHS, "--model=bert-tiny")
_INLINING = ("bench", "inlining", "--modules", "1", "--rounds", "1", "--workers", "1")


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl bench`."""
    return [
        *corpora("--corpus", lambda path: (*_INLINING, f"--corpus={path}"), seed),
        *policies.policies(
            "--policy", lambda path: (*_INLINING, f"--policy={path}"), seed, policies.DECISIONS
        ),
        *_compilers(),
        *_models(seed),
        *damage.files(
            "--rules", lambda path: (*_RULES, f"--rules={path}"), b'{"rules": []}', seed
        ),
        *(
            Case(f"--rules: {what}", (*_RULES, "--rules=r"), with_file("r", text))
            for what, text in texts.NO_JSON.items()
        ),
        Case("--objective: an unknown one", (*_GRAPHS, "--objective", "nonsense")),
        Case("--model: an unknown name", (*_GRAPHS, "--model", "nonsense")),
        Case("--model: an unknown member", (*_GRAPHS, "--model", "resnet:many")),
        Case("--policy: an unknown name", (*_INLINING, "--policy", "nonsense")),
        Case("--policy: of another system", (*_INLINING, "--policy", "policy"), policies.good),
        Case("--only: an unknown one", ("bench", "learn_to_optimize", "--only", "nonsense"),
             status=(1, 2)),
        Case("--only: an empty one", ("bench", "learn_to_optimize", "--only="), status=(1, 2)),
        *_numbers(),
        *usage(
            "bench",
            ("no system", ""),
            ("an unknown system", "chess"),
            ("no such option", "inlining --nonsense"),
            ("an option of another system", "inlining --model bert-tiny"),
            ("a size of 0", "tensor_graphs --dimension n=0"),
            ("a size without a name", "tensor_graphs --dimension =3"),
            ("no size", "tensor_graphs --dimension n"),
        ),
    ]  # fmt: skip


def _numbers() -> Iterator[Case]:
    for words, option, minimum in (
        ("bench inlining", "--modules", 1),
        ("bench inlining", "--rounds", 1),
        ("bench inlining", "--workers", 1),
        ("bench inlining", "--huge-calls", 1),
        ("bench tensor_graphs", "--steps", 1),
        ("bench tensor_graphs", "--seed", 0),
        ("bench learn_to_optimize", "--rounds", 1),
    ):
        for one in numbers(words, option, minimum):
            yield dataclasses.replace(one, what=f"{words} {one.what}")


def _compilers() -> Iterator[Case]:
    for what, (name, make_fn) in (programs.NOT_STARTING | programs.NO_CLANGS).items():
        yield Case(f"--compiler: {what}", (*_INLINING, f"--compiler={name}"), make_fn)


def _models(seed: int) -> Iterator[Case]:
    good = models.good().SerializeToString()
    yield from damage.files("--model", lambda path: (*_GRAPHS, f"--model={path}"), good, seed)
    for what, content in models.wrong():
        words = (*_GRAPHS, "--model=model.onnx")
        yield Case(f"--model: {what}", words, with_file("model.onnx", content))
