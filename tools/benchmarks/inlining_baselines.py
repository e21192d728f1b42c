"""BC-Max from policies that PPO and ES learned, beside the best of them in each module.

    python -m tools.benchmarks.inlining_baselines --corpus runs/corpus --output runs/baselines

takes small C++ modules from the corpora that `tools.fetch_corpus` wrote: train, validation and
heldout. For each seed it learns policies with PPO and ES, and then with BC-Max from the default and
these two: with and without exploration (Algorithms 4 and 1 of the BC-Max paper), with the weights
of buckets (D.3) and of Hedge (D.4). As in the paper, a byte of an object counts as such. Then it
compiles the modules learned on and those held out under each policy, and links the latter.

--output gets
  table.md               savings against LLVM's default at -Oz, with the command
  savings.png, .svg      the same by iteration, as Fig. 1 and 2 of the paper
  seed-*.json            the sizes of all modules and images
  corpora/, runs/        the modules, and the training runs
If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.corpus.building import write_subset
from environments.inlining.corpus.modules import Corpus
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.experiments.arguments import add_fields, read_fields, whole_number
from tfrl_systems.reporting import Reporter, Terminal
from tfrl_systems.systems.inlining.corpora import corpus_digest, small_modules
from tfrl_systems.systems.inlining.problem import Evaluation
from tools import running
from tools.benchmarks import inlining_baselines_report, shared

PARTS = ("train", "validation", "heldout")
BASELINES = ("ppo", "es")
# Name in the records -> settings of the loop.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    f"{explored}, {weights}": {"explore": explored == "exploring", "context_weights": weights}
    for explored in ("exploring", "not exploring")
    for weights in ("buckets", "hedge")
}
# Settings beside the usual ones, by agent.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {"objective": "object"},
    "es": {"objective": "object"},
    "bc_max": {
        **{"objective": "object", "label_objective": "object"},
        **{"model": "trees", "num_rounds": 6, "joint_rounds": 2},
    },
}


@dataclasses.dataclass(frozen=True)
class Study:
    """What is the same for all seeds.

    Attributes:
      corpora: the directories of the modules, by part.
      rounds: iterations of PPO and ES.
      iterations: iterations of BC-Max.
      asked: how to compile and link.
      output: directory of all that is written.
    """

    corpora: Mapping[str, pathlib.Path]
    rounds: int
    iterations: int
    asked: Mapping[str, Any]
    output: pathlib.Path

    def settings(self, seed: int) -> dict[str, Any]:
        """Return what decides the record of a seed, as JSON values."""
        return {
            "corpora_sha256": {
                part: corpus_digest(Corpus.load(path)) for part, path in self.corpora.items()
            },
            "compiler": self.asked["compiler"],
            "rounds": self.rounds,
            "iterations": self.iterations,
            "variants": VARIANTS,
            "settings": SETTINGS,
            "seed": seed,
        }

    def train(
        self, agent: str, name: str, seed: int, settings: Mapping[str, Any], reporter: Reporter
    ) -> experiments.Run:
        """Learn on the modules of train; a run that was interrupted goes on."""
        imitates = agent == "bc_max"
        validation = {"validation": self.corpora["validation"]} if imitates else {}
        reporter.say(f"seed {seed}: {name}")
        return experiments.train(
            "inlining",
            agent=agent,
            seed=seed,
            workdir=self.output / "runs" / f"seed-{seed}" / "-".join(name.replace(",", "").split()),
            iterations=self.iterations if imitates else self.rounds,
            settings={**SETTINGS[agent], **settings},
            collect=Collect.with_workers(self.asked["workers"]),
            resume=True,
            reporter=reporter,
            corpus=self.corpora["train"],
            compiler=self.asked["compiler"],
            cache=self.asked["cache"],
            **validation,
        )

    def measure(
        self, part: str, policies: Mapping[str, str], reporter: Reporter
    ) -> dict[str, dict[str, Any]]:
        """Compile the modules of a part under policies; link those that are held out."""
        linked = part == "heldout"
        found = experiments.evaluate(
            "inlining",
            policies=list(policies.values()),
            corpus=self.corpora[part],
            link=linked,
            reporter=reporter,
            **self.asked,
        )
        columns = ("size_bytes", "exec_bytes")
        return {
            name: {
                "sizes": {
                    row["module"]: [row[column] for column in columns] for row in one["per_module"]
                },
                **({"images": one["images"]} if linked else {}),
            }
            for name, one in zip(policies, found["policies"], strict=True)
        }


def run_seed(study: Study, seed: int, reporter: Reporter) -> shared.Record:
    """Learn and measure with one seed, unless there is a record of it; return the record."""

    def make() -> shared.Record:
        baselines = {
            agent: str(study.train(agent, agent, seed, {}, reporter).policy) for agent in BASELINES
        }
        policies = {"default": "default", **baselines}
        begun_with = tuple(policies.values())
        written = {}
        for name, settings in VARIANTS.items():
            chosen = {**settings, "baselines": begun_with}
            run = study.train("bc_max", name, seed, chosen, reporter)
            written[name] = run.result["evaluation"]["chosen_iteration"]
            for number in range(1, study.iterations + 1):
                directory = run.workdir / "checkpoints" / f"{number:06d}" / "policy"
                policies[f"{name}/{number}"] = str(directory)
        found = {part: study.measure(part, policies, reporter) for part in ("train", "heldout")}
        return {"seed": seed, "iterations": study.iterations, "written": written, "parts": found}

    path = study.output / f"seed-{seed}.json"
    return shared.kept(path, study.settings(seed), make)


def small_corpora(
    directory: pathlib.Path, max_bitcode_bytes: int, output: pathlib.Path, reporter: Reporter
) -> dict[str, pathlib.Path]:
    """Write the small C++ modules of each part as a corpus; return the corpora's directories.

    Raises:
      UserError: a part has none.
    """
    written = {}
    for part in PARTS:
        corpus = Corpus.load(directory / part)
        modules = [one for one in corpus.modules if one.language == "c++"]
        small = small_modules(modules, max_bitcode_bytes, Reporter())
        if not small:
            raise UserError(
                f"{directory / part}: expected C++ modules of at most {max_bitcode_bytes} bytes, "
                "found none; raise --max-bitcode-bytes"
            )
        reporter.say(f"{part}: {len(small)} of {len(modules)} C++ modules")
        written[part] = output / "corpora" / part
        write_subset(Corpus(corpus.directory, small), written[part])
    return written


def run(options: argparse.Namespace) -> None:
    """Run all seeds; write the table after each."""
    with Terminal() as terminal:
        corpora = small_corpora(options.corpus, options.max_bitcode_bytes, options.output, terminal)
        asked = read_fields(options, Evaluation, ["corpus", "never_worse", "link"])
        study = Study(corpora, options.rounds, options.iterations, asked, options.output)
        records = []
        for seed in range(options.seeds):
            records.append(run_seed(study, seed, terminal))
            about = f"`{options.command_line}` at {shared.commit()}"
            inlining_baselines_report.write(records, about, options.output)
            terminal.say(f"{options.output / 'table.md'}: {seed + 1} of {options.seeds} seeds")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_fields(parser, Evaluation, ["corpus", "never_worse", "link"])
    parser.add_argument(
        "--corpus",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="directory of the corpora train, validation and heldout",
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    for flag, default, minimum, text in (
        ("--seeds", 3, 1, "0, 1, …"),
        ("--rounds", 100, 1, "iterations of PPO and ES"),
        ("--iterations", 3, 1, "iterations of BC-Max"),
        ("--max-bitcode-bytes", 120_000, 0, "leave larger modules out; 0 for none"),
    ):
        parser.add_argument(
            flag,
            type=whole_number(minimum),
            default=default,
            metavar="N",
            help=f"{text}; default: {default}",
        )
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.inlining_baselines", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
