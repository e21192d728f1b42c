"""Fig. 1 and 2 of the BC-Max paper: the printed algorithms, and ours beside them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from environments import files
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus
from tfrl_systems.settings import option
from tools.studies.inlining import Folds, make_folds, measure, small_modules
from tools.studies.savings import ORACLE, image_savings, saving, sizes_of
from tools.studies.study import (
    Cell,
    Picture,
    Record,
    Records,
    Study,
    Table,
    Trial,
    mean,
    values_of,
)

# Algorithm 4, see imitation/loop.py. Bytes of objects count as they are, and one network decides.
PRINTED: Mapping[str, Any] = {
    **{"around": "all", "flip_share": 0.1, "bucketed_by": "first"},
    **{"advantage": False, "scoped": False, "margins": ()},
    **{"objective": "object", "label_objective": "object", "num_models": 1},
}
_OURS = {"around": "last", "flip_share": 0.0, "num_rounds": 6, "joint_rounds": 2}
NONE, AS_PRINTED, OURS = "no exploration", "exploring as printed", "exploring as ours"
BUCKETS, HEDGE = "buckets", "Hedge"
# What BC-Max begins with (π_1 of the figure) -> variant -> what differs from the print.
FIGURES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "es": {NONE: {"explore": False}, AS_PRINTED: {}, OURS: _OURS},
    "ppo": {BUCKETS: {}, HEDGE: {"context_weights": "hedge"}},
}
PAIRS = ((AS_PRINTED, NONE), (OURS, NONE), (OURS, AS_PRINTED), (HEDGE, BUCKETS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed(Folds):
    """What is learned on, and how long.

    Attributes:
      iterations: iterations of BC-Max; the first clones π_1.
      folds: parts into which the projects are divided; the first is held out.
      rounds: iterations of PPO and ES.
    """

    iterations: int | None = option(4, metavar="N", minimum=1)
    folds: int = option(2, metavar="N", minimum=2)
    max_bitcode_bytes: int = option(60_000, metavar="N", minimum=0)
    rounds: int = option(15, metavar="N", minimum=1)


def _trials(options: Printed) -> Iterator[Trial]:
    modules = small_modules(Corpus.load(options.corpus), options.max_bitcode_bytes, "c++")
    about = {
        **options.about,
        "language": "c++",
        "corpus_sha256": files.sha256(options.corpus / DESCRIPTION_FILE),
        "held_out": make_folds(modules, options.folds)[0],
        "begin": list(FIGURES),
        "rounds": options.rounds,
        "variants": {
            name: {**PRINTED, "baselines": [first], **settings}
            for first, variants in FIGURES.items()
            for name, settings in variants.items()
        },
        "fixed": (),
        # Only for the record: without margins nothing is chosen by playing.
        "judged_on": "heldout",
    }
    for seed in range(options.seeds):
        yield Trial(f"seed-{seed}", {**about, "seed": seed})


def _savings(record: Record, first: str, name: str) -> dict[str, float]:
    """Return what a policy or an oracle saves against π_1, by part, and in images, in percent."""
    savings = {}
    for part, measured in record["parts"].items():
        sizes = sizes_of(measured["policies"], name)
        savings[part] = saving(sizes, measured["policies"][first]["sizes"], 0)
    images, of_first = (
        record["parts"]["heldout"]["policies"].get(policy, {}).get("images", ())
        for policy in (name, first)
    )
    if images:
        savings["images"] = _loaded_percent(images) - _loaded_percent(of_first)
    return savings


def _loaded_percent(images: Records) -> float:
    return statistics.fmean(image_savings(image)["loaded_percent"] for image in images)


def of_policies(records: Records) -> Iterator[Record]:
    """Yield what each policy saves against π_1, whose iteration is 0; after a policy its oracle."""
    for record in records:
        for first, variants in FIGURES.items():
            start = {"first": first, "seed": record["seed"], "iteration": 0}
            yield {**start, "line": "-Oz", **_savings(record, first, "default")}
            for variant in variants:
                names = [first]
                for number, (agreement, _) in enumerate(record["fits"].get(variant, ()), 1):
                    names.append(f"{variant}/{number}")
                    learned = _savings(record, first, names[-1])
                    before, best = (
                        _savings(record, first, f"{ORACLE} of {'|'.join(members)}")
                        for members in (names[:-1], names)
                    )
                    about = {**start, "iteration": number}
                    distances = {
                        "gap": best["train"] - learned["train"],
                        "regret": before["train"] - learned["train"],
                        "differs": 100 * (1 - agreement),
                    }
                    yield {**about, "line": variant, **learned, **distances}
                    yield {**about, "line": f"{ORACLE} of {variant}", **best}


def of_pairs(records: Records) -> Iterator[Record]:
    """Yield by how much more one variant saves than another, by seed and iteration."""
    rows = {(row["line"], row["seed"], row["iteration"]): row for row in of_policies(records)}
    for pair in PAIRS:
        for (line, seed, iteration), row in rows.items():
            less = rows.get((pair[1], seed, iteration))
            if line == pair[0] and less is not None:
                figures = {name: row[name] - less[name] for name in row if name in _FIGURES}
                yield {"pair": " - ".join(pair), "iteration": iteration, **figures}


def points(records: Records) -> Iterator[Record]:
    """Yield the points of the figures."""
    for row in of_policies(records):
        for part, place in (("train", "learned on"), ("heldout", "held out")):
            if row["iteration"]:
                panel = f"from {row['first']}, modules {place}"
                yield {"panel": panel, **row, "value": row[part]}


def _ahead(figure: str) -> Cell:
    def cell(records: Records) -> str:
        differences = values_of(records, figure)
        if not differences:
            return ""
        num_ahead = sum(difference > 0 for difference in differences)
        return f"{mean(figure)(records)}, {num_ahead} of {len(differences)}"

    return cell


_FIGURES = ("train", "heldout", "images", "gap")
BC_MAX = Study(
    """Fig. 1 and 2 of the BC-Max paper: Algorithms 1, 3 and 4 as printed, and ours beside them.

ES and PPO learn on small C++ modules. From ES, BC-Max goes on without exploration, with Algorithms
3 and 4, and with our exploration (Fig. 2); from PPO with Algorithms 3 and 4, by the weights of
buckets and of Hedge (Fig. 1). All imitate the best episodes alone, without labels of single
decisions and without margins. The first of the folds is held out.""",
    Printed,
    _trials,
    measure,
    [
        Table(
            "Percent of text saved against π_1 (ES or PPO) in the modules learned on, by iteration "
            "(Fig. 1a, 2a): mean (range) over seeds. The oracle is the best policy so far in each "
            "module; -Oz is LLVM's default.",
            ("first", "line"),
            {"": mean("train")},
            across="iteration",
            derive=of_policies,
            label="policy",
        ),
        Table(
            "The same in held-out modules (Fig. 2b); and in their projects' images (code, unwind "
            "tables, read-only data), mean over projects, in points of percent (Fig. 1b).",
            ("first", "line"),
            {"text": mean("heldout"), "images": mean("images")},
            across="iteration",
            derive=of_policies,
            label="policy",
        ),
        Table(
            "How far a policy stays behind an oracle in the modules learned on, in points of "
            "percent: behind the best policy so far, itself included (the gap of Fig. 1a), and "
            "behind the best of those before it (the regret of Appendix B; below 0 it is ahead). "
            "`differs` is the share of the imitated decisions, by weight, that it does not take.",
            ("first", "line"),
            {"gap": mean("gap"), "regret": mean("regret"), "differs, %": mean("differs")},
            across="iteration",
            derive=lambda records: (row for row in of_policies(records) if "differs" in row),
            label="policy",
        ),
        Table(
            "Differences by seed, in points of percent: mean (range), and in how many seeds it is "
            "positive.",
            ("pair",),
            {
                "learned on": _ahead("train"),
                "held out": _ahead("heldout"),
                "images": _ahead("images"),
                "gap": _ahead("gap"),
            },
            across="iteration",
            derive=of_pairs,
            label="difference",
        ),
    ],
    [Picture("bc_max", "saving against the first policy, %", points)],
)
