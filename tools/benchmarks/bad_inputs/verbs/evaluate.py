"""Bad inputs of `tfrl evaluate`."""

from __future__ import annotations

import pathlib

from tools.benchmarks.bad_inputs.case import Case, numbers, usage
from tools.benchmarks.bad_inputs.verbs import functions, policies
from tools.benchmarks.bad_inputs.verbs.corpus import corpora

_SPHERE = "evaluate learn_to_optimize --policy random --function sphere"


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl evaluate`."""
    optimizer = ("evaluate", "learn_to_optimize")
    inlining = ("evaluate", "inlining", "--policy", "default")
    graphs = ("evaluate", "tensor_graphs", "--policy", "greedy")
    other = {
        "inlining's": ("evaluate", "inlining", "--corpus", "corpus"),
        "tensor_graphs'": ("evaluate", "tensor_graphs", "--model", "bert-tiny"),
    }
    return [
        *policies.policies("--policy", lambda path: (*optimizer, f"--policy={path}"), seed),
        *policies.policies(
            "inlining --policy",
            lambda path: (*inlining[:2], f"--policy={path}", "--corpus", "corpus"),
            seed,
            policies.DECISIONS,
        ),
        *functions.functions(lambda name: (*optimizer, "--policy=random", f"--function={name}")),
        *corpora("--corpus", lambda path: (*inlining, f"--corpus={path}"), seed),
        *(
            Case(f"a policy of another system, {name}", (*words, "--policy=policy"), policies.good)
            for name, words in other.items()
        ),
        Case("a model that is not known", (*graphs, "--model", "nonsense")),
        Case("a policy that is not known", (*optimizer, "--policy", "nonsense")),
        Case("cost< of no number", (*inlining[:3], "cost<many", "--corpus", "corpus")),
        Case(
            "a compiler that is missing",
            (*inlining, "--corpus", "corpus", "--compiler", "no-such-clang"),
        ),
        Case("more free parameters than coordinates", (*_SPHERE.split(), "--free", "3")),
        Case("as many free parameters as coordinates", (*_SPHERE.split(), "--free", "2")),
        *numbers(_SPHERE, "--dimensions", 1),
        *numbers(_SPHERE, "--free", 0),
        *numbers(_SPHERE, "--seed", 0),
        *numbers(_SPHERE, "--polish", 0),
        *usage(
            "evaluate",
            ("no system", ""),
            ("an unknown system", "chess"),
            ("no policy", "learn_to_optimize --function sphere"),
            ("no function", "learn_to_optimize --policy random"),
            ("bounds of one number", "learn_to_optimize --policy random --bounds 1"),
        ),
    ]
