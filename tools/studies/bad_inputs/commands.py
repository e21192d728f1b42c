"""Command lines that are wrong by themselves, and damaged runs that are to go on."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from tools.studies.bad_inputs.damage import Content, Damage, flips, write


def split(command: str, ends: str) -> list[str]:
    """Return a command with each of several ends."""
    return [f"{command} {end}" for end in ends.split(" | ")]


OPTIMIZE = "optimize model.onnx -o out.onnx --no-measure --objective analytic --seconds 1"
TRAIN = "train learn_to_optimize --agent ppo --function sphere --workdir run"
SPHERE = "evaluate learn_to_optimize --policy random --function sphere"
TINY = (f"{TRAIN} --iterations 1 --set num_chunks=1 --set episodes_per_chunk=2 "
        "--set hidden_sizes=2 --collect inprocess")  # fmt: skip
_GENERATE = "rules generate -o out.json"

# Verb -> commands whose exit status is 2, because of values that only the verb can judge.
WRONG_USAGE: Mapping[str, list[str]] = {
    "optimize": split(
        OPTIMIZE, "--seconds -1 | --seconds inf | --seconds nan | --measure-seconds 0 | "
        "--dimension n=0 | --dimension n=-1 | --dimension =3 | --dimension n= | --dimension n | "
        "--dimension n=1.5 | --method greedy --policy p | --method policy | "
        "--freeze --dimension n=1,2 | --objective nonsense",
    ),
    "train": [
        *split(TRAIN, "--address auto | --agent oracle | --sampler nonsense | --collect threads | "
               "--bounds 1 | --bounds low,high | --set= | --set=="),
        *split(f"{TRAIN} --set", "nonsense=1 | nonsense | hidden_sizes=a | hidden_sizes=-1 | "
               "hidden_sizes=1,,2 | seed=1 | normalize_rewards=perhaps | preset=none | "
               "num_epochs= | num_chunks=0 | num_chunks=1.5 | evaluate_every=-1 | gamma=nan | "
               "learning_rate=nan | learning_rate=inf | action_std=-inf | clip=many"),
    ],
    "cache clear": split("cache clear", f"costs cost | Compiles | ../costs | * | {'c' * 10_000}"),
}  # fmt: skip
# Verb -> commands whose exit status is 1.
FAILING: Mapping[str, list[str]] = {
    "rules generate": split(_GENERATE, "--vocabulary nonsense | --vocabulary="),
    "optimize": split(
        OPTIMIZE, "--dimension k=3 | --dimension x[1]=3 | --dimension n=1000000000000000 | "
        "--report model.onnx | --checkpoint model.onnx | -o model.onnx",
    ),
    "train": [
        *split(f"{TRAIN} --set", "learning_rate=0 | learning_rate=-1 | gamma=-1 | gamma=2 | "
               "action_std=0 | discount=2 | clip=-1 | hidden_sizes=0 | activation=magic | "
               "reward=praise | reference=none | episode_length=0 | warm_start=nowhere | "
               "num_epochs=0"),
        *split(TRAIN, "--free 3 | --function mine:cost --bounds=1,-1"),
        "train tensor_graphs --agent ppo --workdir run --model nonsense",
    ],
    "evaluate": [
        *split("evaluate inlining --corpus corpus --policy", "policy | cost<many | nonsense"),
        "evaluate tensor_graphs --model bert-tiny --policy=policy",
        "evaluate tensor_graphs --model nonsense --policy greedy",
        *split(SPHERE, "--free 3 | --free 2"),
    ],
    "export": [
        f"export --policy {name} --format {kind} -o out"
        for name in ("policy", "cost<many", "nowhere") for kind in ("mlgo", "clang-plugin")
    ],
    "build": [
        f"build --policy={name} -- true"
        for name in ("nonsense", "random", "cost<", "cost<many", "cost<99999999999", "Default")
    ],
    "bench": [
        *split("bench tensor_graphs --steps 1 --model", "nonsense | resnet:many"),
        *split("bench inlining --modules 1 --rounds 1 --workers 1 --policy", "nonsense | policy"),
    ],
}  # fmt: skip


@functools.cache
def _finished() -> dict[str, bytes]:
    """Return the files of a finished run by relative path; each process trains it once."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "tfrl_systems.cli.main", *TINY.split()]
        root = str(pathlib.Path(__file__).parents[3])
        environment = {**os.environ, "PYTHONPATH": root, "TMPDIR": scratch}
        subprocess.run(command, cwd=scratch, env=environment, capture_output=True, check=True)
        run = pathlib.Path(scratch) / "run"
        paths = [path for path in run.rglob("*") if path.is_file()]
        return {path.relative_to(run).as_posix(): path.read_bytes() for path in paths}


_CHECKPOINT = "checkpoints/000001"


_ChangeFn = Callable[[bytes], Content | None]


def _changed(name: str, change_fn: _ChangeFn) -> Content:
    """Return what makes a finished run in which a file is changed, or removed."""

    def make(path: pathlib.Path) -> None:
        contents: dict[str, Content] = dict(_finished())
        if name.startswith(_CHECKPOINT):
            del contents["result.json"]  # with its result a run reads no checkpoint
        right = contents.pop(name)
        assert isinstance(right, bytes)
        content = change_fn(right)
        write(contents if content is None else {**contents, name: content}, path)

    return make


def damaged_runs(seed: int) -> Iterator[Damage]:
    """Yield directories of runs that are damaged."""
    instead: dict[str, Content | None] = {"missing": None, "a pipe": os.mkfifo, "a directory": {}}
    for name in ("iteration.json", "sha256.json", "state.index", "state.data-00000-of-00002"):
        path = f"{_CHECKPOINT}/{name}"
        for what, content in instead.items():
            yield Damage(f"{name} is {what}", _changed(path, _instead(content)))
        for k in range(4):
            yield Damage(f"{name}, flipped {k}", _changed(path, _flip(seed, k)))
    for name in ("result.json", "run.json"):
        for text in (b"", b"[]", b"{", b"{}"):
            yield Damage(f"{name} is {text!r}", _changed(name, _instead(text)))


def _instead(content: Content | None) -> _ChangeFn:
    return lambda right: content


def _flip(seed: int, number: int) -> _ChangeFn:
    return lambda right: flips(right, seed, number + 1)[number].content


def whole_run(path: pathlib.Path) -> None:
    """Make a finished run."""
    write(_finished(), path)
