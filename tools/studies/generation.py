"""What a generator of rules finds by itself, and what its rules save on the thesis's five graphs.

The thesis takes its substitutions from TASO's generator (section 3.1), which enumerates all graphs
of few operators; figure 4.11 names "over 100" transformations. The package's rules are mostly
written by people. This study generates rules over the operators of TASO's generator, and compares.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files, library
from environments.tensor_graphs.rules.generation.generate import Generator
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.generation.taso_operators import TASO
from environments.tensor_graphs.rules.generation.vocabulary import Vocabulary
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.search import Budget, search
from environments.tensor_graphs.selection.blocking import divided
from tfrl_systems.settings import option
from tools.studies.derivation import (
    Derivations,
    is_within,
    num_operators,
)
from tools.studies.graphs import slug
from tools.studies.runtimes import THESIS_GRAPHS
from tools.studies.study import Cell, Record, Records, Study, Table, Trial, first, total

VOCABULARIES = {vocabulary.name: vocabulary for vocabulary in TASO}
WRITTEN, GENERATED, BOTH = RULE_SETS = ("written", "generated", "both")
_FILE = "rules.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """What rules are generated from, and what they are tried on.

    Attributes:
      vocabularies: a vocabulary of `tfrl rules generate`; may be repeated.
      size: the most operators on a side; smaller sizes are tried first, each by itself.
      minutes: the most processor time for a vocabulary and a size, of which two share an hour;
        smaller rules come first, and what is not considered by then is counted.
      instances: random shapes and attributes to verify a rule with.
      models: a model to search; may be repeated.
      searches: a search; may be repeated.
      expansions: the most rules that a search may apply.
      seed: seed of everything random.
    """

    vocabularies: tuple[str, ...] = option(
        tuple(VOCABULARIES), flag="--vocabulary", metavar="NAME", choices=tuple(VOCABULARIES)
    )
    size: int = option(3, metavar="N", minimum=1)
    minutes: float = option(30.0, metavar="N", positive=True)
    instances: int = option(100, metavar="N", minimum=1)
    models: tuple[str, ...] = option(THESIS_GRAPHS, flag="--model", metavar="FILE|NAME")
    searches: tuple[str, ...] = option(("taso", "regions"), flag="--search", metavar="NAME")
    expansions: int = option(5000, metavar="N", minimum=1)
    seed: int = option(0, metavar="S", minimum=0)


def _trials(options: Generation) -> Iterator[Trial]:
    shared = {"seed": options.seed, "instances": options.instances}
    for size in range(1, options.size + 1):
        for name in options.vocabularies:
            about = {"kind": "generate", "vocabulary": name, "size": size, **shared}
            about["minutes"] = options.minutes
            yield Trial(slug(name, size), about)
    names = [slug(name, options.size) for name in options.vocabularies]
    about = {"vocabularies": options.vocabularies, "size": options.size, "generated_by": names}
    for kind in library.NAMES:
        yield Trial(slug("contained", kind), {"kind": "compare", "of": kind, **about, **shared})
    for model in options.models:
        for method in options.searches:
            for rules in RULE_SETS:
                limits = {"expansions": options.expansions, "generated_by": names}
                what = {"kind": "search", "model": model, "search": method, "rules": rules}
                yield Trial(slug(model, method, rules), {**what, **limits, **shared})


def _measure(about: Record, workdir: pathlib.Path) -> Record:
    return {"generate": _generate, "compare": _compare, "search": _search}[about["kind"]](
        about, workdir
    )


def _generate(about: Record, workdir: pathlib.Path) -> Record:
    vocabulary = dataclasses.replace(VOCABULARIES[about["vocabulary"]], max_size=about["size"])
    began_s = time.process_time()
    generator = Generator(
        about["seed"], num_instances=about["instances"], processor_s=60 * about["minutes"]
    )
    rules = generator.run([vocabulary])
    seconds = time.process_time() - began_s
    workdir.mkdir(parents=True, exist_ok=True)
    origins = {rule.name: files.GENERATED for rule in rules}
    files.write(files.RuleFile(tuple(rules), origins, {}), workdir / _FILE)
    return {
        **{"processor_s": seconds, "stages": dict(generator.counts[vocabulary.name])},
        "rules": len(rules),
        "shrinking": sum(_change(rule) < 0 for rule in rules),
        "growing": sum(_change(rule) > 0 for rule in rules),
        "conditional": sum(bool(rule.conditions) for rule in rules),
        "several_outputs": sum(len(rule.source) > 1 for rule in rules),
        "new": sum(canonical(rule) not in _written_texts() for rule in rules),
    }


def _change(rule: Rule) -> int:
    return num_operators(rule.target) - num_operators(rule.source)


@functools.lru_cache(maxsize=1)
def _written_texts() -> frozenset[str]:
    """The written rules, without their conditions' names for variables."""
    return frozenset(map(canonical, library.all_rules()))


def generated_rules(about: Record, workdir: pathlib.Path) -> list[Rule]:
    """Return the rules that other trials generated: each once, under a name of its own."""
    rules: dict[str, Rule] = {}
    for name in about["generated_by"]:
        for rule in files.read(workdir.parent / name / _FILE).rules:
            renamed = dataclasses.replace(rule, name=f"{name} {rule.name}")
            rules.setdefault(canonical(rule), renamed)
    return list(rules.values())


def _compare(about: Record, workdir: pathlib.Path) -> Record:
    """Say of each written rule of a kind whether the generated ones contain it."""
    began_s = time.process_time()
    rules = generated_rules(about, workdir)
    derivations, texts = Derivations(rules), set(map(canonical, rules))
    vocabularies = [VOCABULARIES[name] for name in about["vocabularies"]]
    written = {
        rule.name: _place(rule, vocabularies, about["size"], texts, derivations)
        for rule in library.rules_of(about["of"])
    }
    return {"written": written, "processor_s": time.process_time() - began_s}


def _place(
    rule: Rule,
    vocabularies: Sequence[Vocabulary],
    size: int,
    texts: set[str],
    derivations: Derivations,
) -> dict[str, Any]:
    """Say whether a rule is within reach of the generator, and how it is contained, if it is."""
    is_reachable = is_within(rule, vocabularies)
    is_small = max(num_operators(rule.source), num_operators(rule.target)) <= size
    how = ""
    if canonical(rule) in texts:
        how = "itself"
    elif is_reachable and derivations.contain(rule):
        how = "chain"
    return {"operators": is_reachable, "small": is_small, "how": how}


def _search(about: Record, workdir: pathlib.Path) -> Record:
    written = divided(files.load())[0]
    written = tuple(rule for rule in written if files.read().origins[rule.name] == files.WRITTEN)
    generated = tuple(generated_rules(about, workdir)) if about["rules"] != WRITTEN else ()
    rules = {WRITTEN: written, GENERATED: generated, BOTH: (*written, *generated)}[about["rules"]]
    start = Engine(rules, AnalyticObjective()).start(Model.load(about["model"]).graph)
    began_s = time.process_time()
    result = search(start, about["search"], Budget(expansions=about["expansions"]))
    return {
        "num_rules": len(rules),
        "matches": len(start.matches),
        "matching": int(start.xfer_mask.sum()),
        "percent": 100 * (result.best.cost_ms / result.start_cost_ms - 1),
        "expansions": result.expansions,
        "processor_s": time.process_time() - began_s,
        "used": sorted({step.rule for step in result.path}),
    }


def _of_kind(kind: str) -> Any:
    return lambda records: (record for record in records if record["kind"] == kind)


def _stage(*names: str) -> Cell:
    return first(lambda record: sum(record["stages"][name] for name in names), "{:,}")


def written_rules(records: Records) -> Iterator[Record]:
    """Yield a record for each written rule in the row of its kind, then in the row of all."""
    placed = []
    for record in _of_kind("compare")(records):
        for place in record["written"].values():
            where = "within" if place["small"] else "larger"
            where = where if place["operators"] else "outside"
            placed.append({"of": record["of"], "where": where, "how": place["how"]})
    yield from placed
    yield from ({**record, "of": "all"} for record in placed)


def _count(where: Sequence[str], how: Sequence[str] = ("", "itself", "chain")) -> Cell:
    return total(lambda record: int(record["where"] in where and record["how"] in how))


_ALL = ("outside", "larger", "within")
GENERATION = Study(
    """Rules that a generator finds over TASO's operators, against the package's written ones.

Generates rules over each vocabulary, up to each size; the thesis takes its rules from TASO's
generator, which has the same operators and goes up to three. A written rule counts as contained if
the generator found it, up to renaming, or if a chain of at most three of its rules turns the
source into the target, in three random instances. Then both sets of rules are searched with, by the
analytic cost, up to the same number of expansions.""",
    Generation,
    _trials,
    _measure,
    [
        Table(
            "Generated over TASO's operators, by the most operators on a side.",
            ("vocabulary", "size"),
            {
                "expressions": _stage("expressions"),
                "distinct": _stage("distinct"),
                "pairs": _stage("candidates"),
                "renamings": _stage("renamings"),
                "common subgraphs": _stage("common subgraphs"),
                "implied": _stage("implied"),
                "refused": _stage(
                    "refused", "hardly apply", "conditions not needed",
                    "change NaN and remove nothing",
                ),
                "not reached": first(lambda record: record["stages"].get("not reached", 0)),
                "rules": first("rules"),
                "shrink, grow": first(lambda of: f"{of['shrinking']}, {of['growing']}"),
                "not written": first("new"),
                "processor s": first("processor_s", "{:.0f}"),
            },
            derive=_of_kind("generate"),
        ),
        Table(
            "Written rules that the generated ones contain.",
            ("of",),
            {
                "written": _count(_ALL),
                "other operators": _count(("outside",)),
                "larger": _count(("larger",)),
                "larger, contained": _count(("larger",), ("itself", "chain")),
                "within reach": _count(("within",)),
                "found itself": _count(("within",), ("itself",)),
                "by a chain": _count(("within",), ("chain",)),
                "missed": _count(("within",), ("",)),
            },
            derive=written_rules,
            label="kind",
        ),
        Table(
            "Change of the analytic cost, rules that match at the start, and those on the path.",
            ("model", "search"),
            {
                "cost": first("percent", "{:.2f}%"),
                "match": first("matching"),
                "used": first(lambda record: len(record["used"])),
                "processor s": first("processor_s", "{:.0f}"),
            },
            across="rules",
            derive=_of_kind("search"),
        ),
    ],
)  # fmt: skip
