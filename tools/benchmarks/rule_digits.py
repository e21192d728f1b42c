"""How often each rule loses digits, and how large the numbers that cancel are then.

    python -m tools.benchmarks.rule_digits > digits.md

draws instances of each rule, and looks at points of one kind in each, at every ratio of the numbers
that cancel to what is left (`verification.digits`). The table has the rules that lose digits at
some ratio: in which share of the instances, and the largest quotient of the errors of both sides,
where the source has an error at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification.digits import RATIOS, Loss, digit_loss
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer
from tfrl_systems.experiments.arguments import path_of_file, whole_number
from tools import running
from tools.benchmarks import shared


def losses(rule: Rule, num_instances: int, seed: int) -> dict[float, list[Loss | None]]:
    """Return what a rule loses in each of some instances, by ratio."""
    drawer = InstanceDrawer(rule, seed, ["float32"])
    rng = np.random.default_rng(seed)
    instances: list[Instance] = []
    while len(instances) < num_instances and (drawn := drawer.draw_round()):
        instances += drawn[: num_instances - len(instances)]
    return {
        ratio: [digit_loss(one, drawer.literals, rng, ratio) for one in instances]
        for ratio in RATIOS
    }


def row(name: str, found: dict[float, list[Loss | None]]) -> list[str]:
    """Return a rule's row of the table: the shares, and the largest quotient of errors."""
    shares = [
        f"{sum(one is not None for one in several) / max(1, len(several)):.1%}"
        for several in found.values()
    ]
    quotients = [
        one.target_error / one.source_error
        for several in found.values()
        for one in several
        if one is not None and one.source_error
    ]
    return [name, *shares, f"{max(quotients):.0e}" if quotients else ""]


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    rules = rule_files.read(options.file).rules
    rows = []
    for rule in rules:
        found = losses(rule, options.instances, options.seed)
        if any(one is not None for several in found.values() for one in several):
            rows.append(row(rule.name, found))
    header = ["rule", *(f"{ratio:.0e}" for ratio in RATIOS), "times the source's error"]
    print(shared.markdown_table(header, rows))
    print(f"{len(rows)} of {len(rules)} rules, {options.instances} instances of each")
    print(f"`{options.command_line}`, commit {shared.commit()}")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=path_of_file, metavar="FILE", help="rules")
    parser.add_argument(
        "--instances", type=whole_number(1), default=200, metavar="N", help="default: 200"
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="K", help="default: 0")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.rule_digits", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
