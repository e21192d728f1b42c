"""Bad inputs of `tfrl train`."""

from __future__ import annotations

import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import FAILURE, USAGE, Case, MakeFn, numbers, usage, with_file
from tools.benchmarks.bad_inputs.verbs import functions
from tools.benchmarks.bad_inputs.verbs.corpus import corpora

_FAST = (
    "--iterations", "1", "--set", "num_chunks=1", "--set", "episodes_per_chunk=2", "--set",
    "hidden_sizes=2",
)  # fmt: skip
_GOOD = ("train", "learn_to_optimize", "--agent", "ppo", "--function", "sphere", *_FAST)
_WORDS = (*_GOOD, "--collect", "inprocess", "--workdir", "run")
_WHOLE = ("evaluate_every", "checkpoint_every", "num_chunks", "episodes_per_chunk", "num_epochs")
_REAL = ("learning_rate", "final_learning_rate", "gamma", "action_std", "discount", "clip")


def cases(seed: int, scratch: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl train`."""
    inlining = ("train", "inlining", "--agent", "bc_max", "--workdir", "run")
    graphs = ("train", "tensor_graphs", "--agent", "ppo", "--workdir", "run")
    return [
        *_settings(),
        *functions.functions(lambda name: (*_WORDS, f"--function={name}")),
        *corpora("--corpus", lambda path: (*inlining, f"--corpus={path}"), seed),
        *_resumed(seed, scratch),
        *damage.outputs(
            "--workdir", lambda path: (*_WORDS[:-2], f"--workdir={path}"), is_directory=True
        ),
        Case("--workdir: other files", _WORDS, _files),
        Case("a model that is not known", (*graphs, "--model", "nonsense")),
        Case("more free parameters than coordinates", (*_WORDS, "--free", "3")),
        Case("--bounds: reversed", (*_WORDS, "--function", "mine:cost", "--bounds=1,-1")),
        *numbers(" ".join(_WORDS), "--iterations", 1),
        *numbers(" ".join(_WORDS), "--workers", 1),
        *numbers(" ".join(_WORDS), "--dimensions", 1),
        *numbers(" ".join(_WORDS), "--free", 0),
        *numbers(" ".join(_WORDS), "--seed", 0),
        *usage(
            " ".join(_WORDS),
            ("--address without Ray", "--address auto"),
            ("an unknown agent", "--agent oracle"),
            ("an unknown sampler", "--sampler nonsense"),
            ("an unknown kind of collection", "--collect threads"),
            ("bounds of one number", "--bounds 1"),
            ("bounds of text", "--bounds low,high"),
        ),
        *usage(
            "train",
            ("no system", ""),
            ("an unknown system", "chess"),
            ("no agent", "learn_to_optimize --function sphere --workdir run"),
            ("no workdir", "learn_to_optimize --function sphere --agent ppo"),
            ("no function", "learn_to_optimize --agent ppo --workdir run"),
        ),
    ]


def _settings() -> list[Case]:
    """Make the cases of --set."""

    def case(text: str, status: tuple[int, ...]) -> Case:
        return Case(f"--set {text[:40]}", (*_WORDS, "--set", text), status=status)

    wrong = ["", "=", "nonsense=1", "nonsense", "hidden_sizes=a", "hidden_sizes=-1", "seed=1"]
    wrong += ["normalize_rewards=perhaps", "preset=none", "num_epochs=", "hidden_sizes=1,,2"]
    wrong += [f"{name}={text}" for name in _WHOLE for text in ("-1", "many", "1.5", "9" * 5000)]
    wrong += [f"{name}=0" for name in _WHOLE if name != "num_epochs"]
    wrong += [f"{name}={text}" for name in _REAL for text in ("nan", "inf", "-inf", "many")]
    range_ = ["num_epochs=0", "learning_rate=0", "learning_rate=-1", "gamma=-1", "gamma=2"]
    range_ += ["action_std=0", "discount=2", "clip=-1", "hidden_sizes=0", "activation=magic"]
    range_ += ["reward=praise", "reference=none", "episode_length=0", "warm_start=nowhere"]
    return [*(case(one, USAGE) for one in wrong), *(case(one, FAILURE) for one in range_)]


def _files(directory: pathlib.Path) -> None:
    (directory / "run").mkdir()
    (directory / "run" / "precious").write_text("a file")


def _resumed(seed: int, scratch: pathlib.Path) -> list[Case]:
    """Make the cases of runs that are damaged, and are to go on."""
    again = (*_WORDS, "--resume")
    checkpoint = "checkpoints/000001"

    def case(what: str, change_fn: MakeFn, words: tuple[str, ...] = again) -> Case:
        return Case(f"--resume: {what}", words, functools.partial(_run, scratch, change_fn))

    found = []
    for name in ("iteration.json", "sha256.json", "state.index", "state.data-00000-of-00001"):
        path = f"{checkpoint}/{name}"
        found += [
            case(f"{name} missing", _unfinished(path, pathlib.Path.unlink)),
            case(f"{name} empty", _unfinished(path, lambda one: one.write_bytes(b"") and None)),
            case(f"{name} a pipe", _unfinished(path, _pipe)),
            case(f"{name} a directory", _unfinished(path, _to_directory)),
        ]
        found += [
            case(f"{name} flipped {n}", _unfinished(path, functools.partial(_flip, seed, n)))
            for n in range(4)
        ]
    for name in ("result.json", "run.json"):
        for what, content in {"empty": b"", "a list": b"[]", "no JSON": b"{", "{}": b"{}"}.items():
            found.append(case(f"{name} {what}", with_file(name, content)))
    found.append(case("a run, without --resume", lambda _: None, _WORDS))
    found.append(case("another seed", lambda _: None, (*again, "--seed", "7")))
    found.append(case("another function", lambda _: None, (*again, "--function", "ackley")))
    return found


def _run(scratch: pathlib.Path, change_fn: MakeFn, directory: pathlib.Path) -> None:
    """Copy a finished run, which the first case trains, and damage it."""
    scratch.mkdir(exist_ok=True)
    with (scratch / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = scratch / "trained"
        if not kept.exists():
            made = scratch / "training"
            command = [sys.executable, "-m", "tfrl_systems.cli.main", *_WORDS[:-1], str(made)]
            temporary = scratch / "temporary"
            temporary.mkdir(exist_ok=True)
            # Nothing else can be written here.
            environment = {
                **os.environ,
                "PYTHONPATH": str(pathlib.Path(__file__).parents[4]),
                "TMPDIR": str(temporary),
            }
            done = subprocess.run(command, capture_output=True, env=environment)
            if done.returncode:
                raise RuntimeError(f"expected a run to damage, found {done.stderr[-2000:]!r}")
            made.rename(kept)
    shutil.copytree(kept, directory / "run")
    change_fn(directory / "run")


def _unfinished(name: str, change_fn: MakeFn) -> MakeFn:
    """Return what damages a file of a run that has no result yet."""

    def change(run: pathlib.Path) -> None:
        (run / "result.json").unlink()
        change_fn(run / name)

    return change


def _pipe(path: pathlib.Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _to_directory(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


def _flip(seed: int, number: int, path: pathlib.Path) -> None:
    path.write_bytes(damage.flipped(path.read_bytes(), seed, number))
