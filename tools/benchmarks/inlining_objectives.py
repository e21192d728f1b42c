"""Which count of an object's bytes tells best how large the linked image becomes?

    python -m tools.benchmarks.inlining_objectives --corpus runs/corpus/all --policy DIR

Compiles the C++ projects of a corpus under many policies, links each project, and gives for each
candidate objective the rank correlation (Spearman) of its sum over a project's objects with the
size of the linked image, over the policies. Prints one JSON object.

The policies are thresholds on LLVM's cost, LLVM's own decisions with a share of them changed at
random, and the learned policies that --policy names, each with several margins.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.errors import Failure
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize, read_object_size
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Decider, Default, Policy, make_heuristic
from environments.inlining.linking.images import ImageSize, link
from environments.inlining.linking.objective import count_copies
from environments.inlining.linking.objects import WriteObject
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter, Terminal
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.workers import make_collector

THRESHOLDS = (-60, -40, -30, -20, -10, -5, 0, 10, 15, 25, 40)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
MARGINS = (0.0, 0.5, 1.0, 2.0, 3.0)
# What a byte of a COMDAT group counts if n objects of the project hold it.
WORTH: Mapping[str, Callable[[int], float]] = {
    "object": lambda n: 1.0,
    "1/n": lambda n: 1 / n,
    "1 if n = 1, else 0": lambda n: float(n == 1),
    "1/sqrt(n)": lambda n: n**-0.5,
}


class Noisy:
    """LLVM's own decisions, a share of them changed at random."""

    def __init__(self, share: float, seed: int) -> None:
        self.name = self.fingerprint = f"noise {share} {seed}"
        self._share, self._seed = share, seed

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """See `Policy`."""
        default = Default().begin(module_name, names)
        entropy = (self._seed, *module_name.encode())

        def decide(features: np.ndarray, first: int) -> np.ndarray:
            drawn = np.random.default_rng(entropy).random(first + len(features))[first:]
            return default(features, first) ^ (drawn < self._share).astype(np.int8)

        return decide


def make_policies(directories: Sequence[str]) -> list[Policy]:
    """Return the policies to compare."""
    policies: list[Policy] = [make_heuristic(f"cost<{limit}") for limit in THRESHOLDS]
    policies += [Noisy(share, seed) for share in SHARES for seed in (0, 1)]
    for directory in directories:
        learned = CallSitePolicy.load(directory)
        policies += [learned.with_margins(margin) for margin in MARGINS]
    return policies


def measure(
    collector: Collector, modules: Sequence[Module], policy: Policy, reporter: Reporter
) -> tuple[dict[str, ObjectSize], dict[str, ImageSize]]:
    """Return the sizes of all objects by module, and of the images by project."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        written = collector.map(
            WriteObject(policy, directory), modules, reporter.task(policy.name, len(modules))
        )
        sizes = {}
        paths: dict[str, list[pathlib.Path]] = {}
        for module, path in zip(modules, written, strict=True):
            if not isinstance(path, Failure):
                sizes[module.name] = read_object_size(path.read_bytes())
                paths.setdefault(module.project, []).append(path)
        return sizes, {
            project: link(found, directory / f"{project}.image") for project, found in paths.items()
        }


def correlate(
    modules: Sequence[Module],
    default_sizes: Mapping[str, ObjectSize],
    found: Sequence[tuple[Mapping[str, ObjectSize], Mapping[str, ImageSize]]],
) -> dict[str, dict[str, float]]:
    """Return the rank correlation with the image, by objective and project.

    Projects whose image is the same under all policies are left out.

    Args:
      modules: the modules.
      default_sizes: sizes of their plain -Oz objects, by name.
      found: for each policy what `measure` returns.
    """
    from scipy import stats

    project_of = {one.name: one.project for one in modules}
    defaults = [(one, default_sizes[one.name]) for one in modules if one.name in default_sizes]
    correlations: dict[str, dict[str, float]] = {}
    for name, worth_fn in WORTH.items():
        objective = count_copies(name, defaults, worth_fn)
        correlations[name] = {}
        for project in sorted(set(project_of.values())):
            costs = [
                sum(
                    objective.cost(project, size)
                    for module, size in sizes.items()
                    if project_of[module] == project
                )
                for sizes, _ in found
            ]
            images = [image[project].loaded_bytes for _, image in found]
            if len(set(images)) > 1 and len(set(costs)) > 1:
                correlations[name][project] = float(stats.spearmanr(costs, images).statistic)
    return correlations


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compile and link under all policies; return what is printed."""
    modules = [
        one
        for one in Corpus.load(options.corpus).modules
        if one.language == "c++" and not 0 < options.max_bitcode_bytes < one.path.stat().st_size
    ]
    collect = Collect.with_workers(options.workers)
    with (
        Terminal() as terminal,
        make_collector(options.compiler, TrajectoryStore(), collect) as collector,
    ):
        default_sizes, _ = measure(collector, modules, Default(), terminal)
        policies = make_policies(options.policy)
        found = [measure(collector, modules, policy, terminal) for policy in policies]
    summary = {
        name: {"mean": statistics.fmean(of.values()), "least": min(of.values()), "projects": of}
        for name, of in correlate(modules, default_sizes, found).items()
    }
    return {"policies": len(found), "modules": len(modules), "objectives": summary}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--compiler", default="embedded", metavar="embedded|CLANG")
    parser.add_argument("--policy", action="append", default=[], metavar="DIR")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument(
        "--max-bitcode-bytes", type=int, default=0, metavar="N", help="leave out larger modules"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Run the tool; return the exit status."""
    print(json.dumps(run(parse_arguments(sys.argv[1:]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
