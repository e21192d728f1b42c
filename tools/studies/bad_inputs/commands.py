"""Command lines that are wrong by themselves, and surroundings in which something is missing.

A command may begin with variables of its environment, as in a shell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_TRAIN = "train learn_to_optimize --agent ppo --function sphere --workdir run"
_SPHERE = "evaluate learn_to_optimize --policy random --function sphere"
_OPTIMIZE = "optimize model.onnx -o out.onnx --no-measure --objective analytic --seconds 1"
_GENERATE = "rules generate -o out.json --vocabulary order"

USAGE: Mapping[str, tuple[str, ...]] = {
    "rules generate": ("rules generate",),
    "rules import": ("rules import", "rules import a.pb b.pb"),
    "rules list": ("rules list a.json b.json", "rules list --nonsense"),
    "corpus info": ("corpus info", "corpus info a b", "corpus info a --no"),
    "corpus build": ("corpus build", "corpus build a.c", "corpus build -o out"),
    "optimize": (
        *("optimize", "optimize model.onnx"),
        *(
            f"{_OPTIMIZE} {words}"
            for words in (
                "--method magic", "--seconds -1", "--seconds inf", "--seconds nan",
                "--measure-seconds 0", "--dimension n=0", "--dimension n=-1", "--dimension =3",
                "--dimension n=", "--dimension n", "--dimension n=1.5",
                "--method greedy --policy p", "--method policy", "--nonsense",
                "--freeze --dimension n=1,2", "--objective nonsense",
            )
        ),
    ),
    "train": (
        *("train", "train chess", "train learn_to_optimize --function sphere --workdir run"),
        *("train learn_to_optimize --function sphere --agent ppo",),
        *("train learn_to_optimize --agent ppo --workdir run",),
        *(
            f"{_TRAIN} {words}"
            for words in (
                "--address auto", "--agent oracle", "--sampler nonsense", "--collect threads",
                "--bounds 1", "--bounds low,high", "--set=", "--set==", "--set nonsense=1",
                "--set nonsense", "--set hidden_sizes=a", "--set hidden_sizes=-1", "--set seed=1",
                "--set normalize_rewards=perhaps", "--set preset=none", "--set num_epochs=",
                "--set hidden_sizes=1,,2",
            )
        ),
        *(
            f"{_TRAIN} --set {name}={text}"
            for name in ("evaluate_every", "checkpoint_every", "num_chunks", "episodes_per_chunk")
            for text in ("-1", "0", "many", "1.5", "9" * 5000)
        ),
        *(
            f"{_TRAIN} --set {name}={text}"
            for name in ("learning_rate", "final_learning_rate", "gamma", "action_std", "clip")
            for text in ("nan", "inf", "-inf", "many")
        ),
    ),
    "evaluate": (
        *("evaluate", "evaluate chess", "evaluate learn_to_optimize --function sphere"),
        *("evaluate learn_to_optimize --policy random", f"{_SPHERE} --bounds 1"),
    ),
    "export": (
        *("export", "export --format onnx -o out", "export --policy policy -o out"),
        *("export --policy policy --format onnx", "export --policy policy --format zip -o out"),
    ),
    "build": (
        *("build", "build -- true", "build --policy default", "build --policy default --"),
        *("build --policy default --nonsense -- true", "build --policy"),
        "build --policy default --compiler",
    ),
    "bench": (
        *("bench", "bench chess", "bench inlining --nonsense", "bench inlining --model bert-tiny"),
        *(f"bench tensor_graphs --dimension {size}" for size in ("n=0", "=3", "n")),
        "bench tensor_graphs --objective nonsense",
    ),
    "cache info": ("cache info compiles", "cache info --nonsense"),
    "cache clear": (
        *("cache", "cache burn", "cache clear --all", "cache clear costs cost"),
        *(f"cache clear {name}" for name in ("nonsense", "Compiles", "compiles,costs")),
        *(f"cache clear {name}" for name in ("../costs", "*", "c" * 10_000)),
    ),
    "doctor": ("doctor clang", "doctor --nonsense", "doctor --cache"),
}  # fmt: skip
FAILING: Mapping[str, tuple[str, ...]] = {
    "rules generate": (f"{_GENERATE} --vocabulary nonsense", f"{_GENERATE} --vocabulary="),
    "optimize": tuple(
        f"{_OPTIMIZE} {words}"
        for words in (
            "--dimension k=3", "--dimension x[1]=3", "--dimension n=1000000000000000",
            "--report model.onnx", "--checkpoint model.onnx",
            "-o model.onnx",
        )
    ),
    "train": (
        *(f"{_TRAIN} --set {name}" for name in (
            "learning_rate=0", "learning_rate=-1", "gamma=-1", "gamma=2", "action_std=0",
            "discount=2", "clip=-1", "hidden_sizes=0", "activation=magic", "reward=praise",
            "reference=none", "episode_length=0", "warm_start=nowhere", "num_epochs=0",
        )),
        *(f"{_TRAIN} --free 3", f"{_TRAIN} --function mine:cost --bounds=1,-1"),
        "train tensor_graphs --agent ppo --workdir run --model nonsense",
    ),
    "evaluate": (
        *("evaluate inlining --corpus corpus --policy=policy",),
        *("evaluate tensor_graphs --model bert-tiny --policy=policy",),
        *("evaluate tensor_graphs --policy greedy --model nonsense",),
        *("evaluate learn_to_optimize --policy nonsense",),
        *("evaluate inlining --policy cost<many --corpus corpus",),
        *("evaluate inlining --policy default --corpus corpus --compiler no-such-clang",),
        *(f"{_SPHERE} --free 3", f"{_SPHERE} --free 2"),
    ),
    "export": (
        *(f"export --policy policy --format {kind} -o out" for kind in ("mlgo", "clang-plugin")),
        *(f"export --policy {name} --format {kind} -o out"
          for name in ("cost<many", "nowhere") for kind in ("mlgo", "clang-plugin")),
        "export --policy default --format mlgo -o out",
        "export --policy random --format onnx -o out",
    ),
    "build": tuple(
        f"build --policy={name} -- true"
        for name in ("nonsense", "random", "cost<", "cost<many", "cost<99999999999", "Default")
    ),
    "bench": (
        *(f"bench tensor_graphs --steps 1 {words}" for words in (
            "--model nonsense", "--model resnet:many",
        )),
        *(f"bench inlining --modules 1 --rounds 1 --workers 1 --policy {name}"
          for name in ("nonsense", "policy")),
    ),
}  # fmt: skip
# Commands that end as they would alone, with their report on stdout: command -> exit status.
_NEVER = "build --policy=never --json -- true"
_NOWHERE = {
    "XDG_CACHE_HOME": ("file", "file/cache", "/dev/zero", "/proc/nowhere", "/" + "n" * 5000),
    "HOME": ("", "/no/such/home"),
}
_PLACES = [f"{name}={place}" for name, places in _NOWHERE.items() for place in places]
REPORTING: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "build": {
        **{f"PATH={path} {_NEVER.replace('true', '/bin/true')}": (0,)
           for path in ("", "/no/such/directory:/bin")},
        **{f"PATH=bin {place} {_NEVER}": (0,)
           for place in ("XDG_CACHE_HOME=bin/true", "XDG_CACHE_HOME=/proc/nowhere", "HOME=")},
        **{f"PATH=bin TMPDIR={place} {_NEVER}": (0, 1) for place in ("nowhere", "file", "/proc")},
    },
    "cache info": {f"{place} cache info --json": (0,) for place in _PLACES},
    "doctor": {
        **{f"PATH=bin {place} doctor --json": (0, 1) for place in _PLACES},
        **{f"PATH={path} doctor --json": (0, 1) for path in ("", "/no/such/directory")},
        **{f"PATH=bin TMPDIR={place} doctor --json": (0, 1)
           for place in ("nowhere", "/proc", "/tmp/" + "n" * 200)},
    },
}  # fmt: skip
# Options that take whole numbers, with the least: command -> options.
_NUMBERS: Mapping[str, Mapping[str, int]] = {
    _GENERATE: {"--seed": 0, "--max-size": 1, "--instances": 1, "--seeds": 1, "--jobs": 1},
    "rules verify": {"--instances": 1, "--seed": 0, "--jobs": 1},
    "rules import good.pb": {"--instances": 1},
    "corpus build a.c -o out": {"--jobs": 1},
    _OPTIMIZE: {"--expansions": 0, "--rollouts": 1},
    _TRAIN: {"--iterations": 1, "--workers": 1, "--dimensions": 1, "--free": 0, "--seed": 0},
    _SPHERE: {"--dimensions": 1, "--free": 0, "--seed": 0, "--polish": 0},
    "bench inlining": {"--modules": 1, "--rounds": 1, "--workers": 1, "--huge-calls": 1},
    "bench tensor_graphs": {"--steps": 1, "--seed": 0},
    "bench learn_to_optimize": {"--rounds": 1},
}
_NO_NUMBERS = {
    "no number": "many",
    "empty": "",
    "negative": "-7",
    "a fraction": "1.5",
    "NaN": "nan",
    "infinite": "inf",
    "hexadecimal": "0x10",
    "of 5000 digits": "9" * 5000,
}


def numbers(verb: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a number, and the command."""
    for command, options in _NUMBERS.items():
        if f"{command} ".startswith(f"{verb} "):
            for option, least in options.items():
                for what, text in {**_NO_NUMBERS, "below the least": str(least - 1)}.items():
                    yield f"{command} {option}: {what}", f"{command} {option}={text}"
