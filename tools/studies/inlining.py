"""Studies of inlining: how much smaller learned policies make projects that they never saw.

All of them learn in the same way. A trial has modules to learn on and modules that are held out. It
trains some agents, begins BC-Max from LLVM's default and their policies, in several variants, and
compiles and links the held-out modules under the policies of each iteration.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.corpus.building import write_subset
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus, Module
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.settings import option
from tfrl_systems.systems.inlining.problem import Compiling
from tools.studies import learning
from tools.studies.savings import of_images, of_languages, of_parts, points
from tools.studies.study import Picture, Record, Study, Table, Trial, mean

FIXED = ("always", "never", "cost<-5", "cost<-20", "cost<-35")
# BC-Max with the weights of buckets (D.3) and of Hedge (D.4), with our exploration and its labels
# of single decisions, and without both.
ALGORITHMS = {
    f"{explored}, {weights}": {"explore": explored == "exploring", "context_weights": weights}
    for explored in ("exploring", "not exploring")
    for weights in ("buckets", "hedge")
}
# As in the paper, a byte of an object counts as such.
_BY_OBJECT = {"objective": "object"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folds(Compiling, learning.Options):
    """What is learned on, and how long.

    Attributes:
      folds: parts into which the projects are divided; each is held out once.
      max_bitcode_bytes: leave larger modules out of all; 0 for none.
      workers: compilers that run at the same time.
    """

    seeds: int = option(3, metavar="N", minimum=1)
    folds: int = option(4, metavar="N", minimum=2)
    max_bitcode_bytes: int = option(0, metavar="N", minimum=0)
    workers: int = option(2, metavar="N", minimum=1)

    @property
    def about(self) -> dict[str, Any]:
        """What all trials are about, as JSON values."""
        return {
            "corpus": str(self.corpus),
            "compiler": self.compiler,
            "cache": str(self.cache),
            "iterations": self.iterations,
            "max_bitcode_bytes": self.max_bitcode_bytes,
            "workers": self.workers,
            "settings": self.assigned,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baselines(Folds):
    """What is learned on, and how long.

    Attributes:
      corpus: directory of the corpora train, validation and heldout, as `tools.fetch_corpus` makes
        them.
      rounds: iterations of PPO and ES.
    """

    iterations: int | None = option(3, metavar="N", minimum=1)
    max_bitcode_bytes: int = option(120_000, metavar="N", minimum=0)
    rounds: int = option(100, metavar="N", minimum=1)


def make_folds(modules: Sequence[Module], num_folds: int) -> list[list[str]]:
    """Divide projects into folds that have about as many bytes of bitcode in each language.

    Projects are dealt out from large to small, each to the fold with the fewest bytes of its
    language.

    Raises:
      UserError: there are fewer projects than folds.
    """
    size_bytes: collections.Counter[str] = collections.Counter()
    language: dict[str, str] = {}
    for module in modules:
        size_bytes[module.project] += module.path.stat().st_size
        language.setdefault(module.project, module.language)
    if len(size_bytes) < num_folds:
        raise UserError(
            f"folds: expected at most {len(size_bytes)}, the projects of the corpus, found "
            f"{num_folds}; change --folds or take a larger corpus"
        )
    filled: collections.Counter[tuple[int, str]] = collections.Counter()
    folds: list[list[str]] = [[] for _ in range(num_folds)]
    for project in sorted(size_bytes, key=lambda name: (-size_bytes[name], name)):
        own = language[project]
        # Ties, as between folds without this language, go to the fold with the fewest projects.
        fold = min(range(num_folds), key=lambda k: (filled[k, own], len(folds[k]), k))
        filled[fold, own] += size_bytes[project]
        folds[fold].append(project)
    return [sorted(projects) for projects in folds]


def small_modules(corpus: Corpus, max_bytes: int, language: str = "") -> tuple[Module, ...]:
    """Return the modules of at most so many bytes of bitcode; 0 for all. "" is any language."""
    return tuple(
        module
        for module in corpus.modules
        if (not max_bytes or module.path.stat().st_size <= max_bytes)
        and language in ("", module.language)
    )


def _of_folds(options: Folds) -> Iterator[Trial]:
    about = {
        **options.about,
        "corpus_sha256": files.sha256(options.corpus / DESCRIPTION_FILE),
        "variants": {"learned": {}, "learned without exploration": {"explore": False}},
        "fixed": FIXED,
    }
    modules = small_modules(Corpus.load(options.corpus), options.max_bitcode_bytes)
    for seed in range(options.seeds):
        for fold, projects in enumerate(make_folds(modules, options.folds)):
            yield Trial(f"fold-{fold}-seed-{seed}", {**about, "held_out": projects, "seed": seed})


def _of_baselines(options: Baselines) -> Iterator[Trial]:
    about = {
        **options.about,
        "corpus_sha256": [
            files.sha256(options.corpus / part / DESCRIPTION_FILE)
            for part in ("train", "validation", "heldout")
        ],
        "begin": ["ppo", "es"],
        "rounds": options.rounds,
        "variants": {
            name: {**_BY_OBJECT, "label_objective": "object", "num_rounds": 6, "joint_rounds": 2}
            | settings
            for name, settings in ALGORITHMS.items()
        },
        "fixed": (),
    }
    for seed in range(options.seeds):
        yield Trial(f"seed-{seed}", {**about, "seed": seed})


def measure(about: Record, workdir: pathlib.Path) -> Record:
    """Learn on a trial's modules; return sizes of the modules and images under all policies.

    Returns:
      `parts`: for the modules learned on, if they are small enough to be compiled again, and those
      held out, what `experiments.evaluate` says of each policy; the policies of a variant are
      called VARIANT/ITERATION. `written`: the iteration that each training chose.
    """
    corpora = _write_corpora(about, workdir / "corpora")
    compiling = {name: about[name] for name in ("compiler", "cache")}
    shared = {**compiling, "corpus": corpora["train"]}
    policies: dict[str, str] = {"default": "default"}

    def learn(agent: str, name: str, iterations: int | None, **settings: Any) -> Any:
        validation = {"validation": corpora["validation"]} if "validation" in corpora else {}
        about_run = {"system": "inlining", "agent": agent, "seed": about["seed"]}
        assigned = about["settings"]
        if "begin" in about:  # --set is for all agents that have the field
            assigned = learning.known_settings("inlining", agent, assigned)
        about_run |= {"iterations": iterations, "settings": {**assigned, **settings}}
        place = workdir / "-".join(name.replace(",", "").split())
        problem = {**shared, **(validation if agent == "bc_max" else {})}
        return learning.train(
            about_run, place, collect=Collect.with_workers(about["workers"]), **problem
        )

    for agent in about.get("begin", ()):
        policies[agent] = str(learn(agent, agent, about["rounds"], **_BY_OBJECT).policy)
    begun_with = {"baselines": tuple(policies.values())} if "begin" in about else {}
    policies |= {name: name for name in about["fixed"]}
    written = {}
    for name, variant in about["variants"].items():
        run = learn("bc_max", name, about["iterations"], **begun_with, **variant)
        evaluation = run.result["evaluation"]
        written[name] = evaluation["chosen_iteration"]
        for number in range(1, 1 + len(evaluation["iterations"])):
            directory = run.workdir / "checkpoints" / f"{number:06d}" / "policy"
            policies[f"{name}/{number}"] = str(directory)
    measured = ("train", "heldout") if "begin" in about else ("heldout",)
    return {
        "written": written,
        "parts": {
            part: _sizes(corpora[part], policies, about, link=part == "heldout")
            for part in measured
        },
    }


def _write_corpora(about: Record, directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write the modules of each part as a corpus; return the corpora's directories.

    Raises:
      UserError: a part has none.
    """
    source = pathlib.Path(about["corpus"])
    is_divided = "held_out" not in about
    language = "c++" if is_divided else ""
    chosen: dict[str, tuple[Corpus, list[Module]]] = {}
    for part in ("train", "validation", "heldout") if is_divided else ("train", "heldout"):
        corpus = Corpus.load(source / part if is_divided else source)
        chosen[part] = (
            corpus,
            [
                module
                for module in small_modules(corpus, about["max_bitcode_bytes"], language)
                if is_divided or (module.project in about["held_out"]) == (part == "heldout")
            ],
        )
    for part, (corpus, of_part) in chosen.items():
        if not of_part:
            raise UserError(f"{source}: expected modules for {part}, found none small enough; "
                            "raise --max-bitcode-bytes")  # fmt: skip
        write_subset(Corpus(corpus.directory, tuple(of_part)), directory / part)
    return {part: directory / part for part in chosen}


def _sizes(
    corpus: pathlib.Path, policies: Mapping[str, str], about: Record, link: bool
) -> dict[str, Any]:
    """Return sizes by module, [text, code], and images, of each policy; and of which languages."""
    compiling = {name: about[name] for name in ("compiler", "cache", "workers")}
    evaluated = learning.evaluate(
        "inlining", list(policies.values()), about["seed"], corpus=corpus, link=link, **compiling
    )
    return {
        "languages": {module.name: module.language for module in Corpus.load(corpus).modules},
        "policies": {
            name: {
                "sizes": {
                    row["module"]: [row["size_bytes"], row["exec_bytes"]]
                    for row in evaluation["per_module"]
                },
                "images": evaluation.get("images", []),
            }
            for name, evaluation in zip(policies, evaluated["policies"], strict=True)
        },
    }


FOLDS = Study(
    """Leave projects out: how much smaller learned policies make code that they never saw.

Divides a corpus into folds of whole projects, by their languages and sizes of bitcode alone. For
each fold and seed it learns on the other folds as `tfrl train inlining` does, with and without
exploration, and compiles and links the fold under the policies of each iteration.""",
    Folds,
    _of_folds,
    measure,
    [
        Table(
            "Percent saved on held-out modules against LLVM's default at -Oz, mean (range) over "
            "seeds: the text column of `llvm-size`, and code alone; `worse` counts modules whose "
            "text is larger. The oracle has the smallest object of each module under the policies "
            "and baselines.",
            ("policy",),
            {
                "text": mean("text_percent"),
                "code": mean("code_percent"),
                "worse": mean("worse", "{:.0f}"),
                "modules": mean("modules", "{:.0f}"),
            },
            across="language",
            derive=of_languages,
            label="policy",
        ),
        Table(
            "Each held-out project linked whole, copies merged; percent saved.",
            ("project",),
            {
                "code": mean("code_percent"),
                "code, unwind tables, read-only data": mean("loaded_percent"),
                "stripped file": mean("file_percent"),
            },
            derive=of_images,
            label="project",
        ),
    ],
    Picture("savings", "saving against -Oz, %", points),
)

BASELINES = Study(
    """BC-Max from policies that PPO and ES learned, beside the best of them in each module.

PPO and ES learn on small C++ modules; BC-Max begins with the default and these two, with our
exploration and its labels of single decisions and without both, with the weights of buckets (D.3)
and of Hedge (D.4) of the BC-Max paper.""",
    Baselines,
    _of_baselines,
    measure,
    [
        Table(
            "Percent saved against -Oz, mean (range) over seeds. The oracle is the best of "
            "default, PPO and ES in each module; images are those of held-out projects, mean.",
            ("policy",),
            {
                "learned on: text": mean("train_percent"),
                "held out: text": mean("text_percent"),
                "code": mean("code_percent"),
                "worse": mean("worse", "{:.1f}"),
                "modules": mean("modules", "{:.0f}"),
                "images": mean("loaded_percent"),
                "files": mean("file_percent"),
            },
            derive=of_parts,
            label="policy",
        )
    ],
)
