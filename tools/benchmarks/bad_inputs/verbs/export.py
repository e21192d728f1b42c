"""Bad inputs of `tfrl export`."""

from __future__ import annotations

import functools
import pathlib

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import Case, usage
from tools.benchmarks.bad_inputs.verbs import policies, programs


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl export`."""

    def words(policy: str, output: str = "out", kind: str = "onnx") -> tuple[str, ...]:
        return ("export", f"--policy={policy}", "--format", kind, f"--output={output}")

    found = [
        *policies.policies("--policy", words, seed, leaves=("out",)),
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
        found += policies.policies(
            f"{kind}: --policy", functools.partial(words, kind=kind), seed, policies.DECISIONS,
            leaves=("out",),
        )  # fmt: skip
        found += [
            Case(f"{kind}: a policy of another system", words("policy", kind=kind), policies.good),
            Case(f"{kind}: an empty directory", words("policy", kind=kind), _directory),
            Case(f"{kind}: cost< of no number", words("cost<many", kind=kind)),
            Case(f"{kind}: a policy that is missing", words("nowhere", kind=kind)),
        ]
    found.append(Case("mlgo: a policy without a model", words("default", kind="mlgo")))
    found.append(Case("onnx: a named policy", words("random")))
    for what, (name, make_fn) in (programs.NOT_STARTING | programs.NO_CLANGS).items():
        plugin = words("default", kind="clang-plugin")
        found.append(Case(f"--compiler: {what}", (*plugin, f"--compiler={name}"), make_fn))
    return found


def _directory(directory: pathlib.Path) -> None:
    (directory / "policy").mkdir()
