"""The table and the picture of `inlining_tables.py`, computed from its records."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tools.benchmarks import inlining_images
from tools.benchmarks.shared import markdown_table, picture

Record = Mapping[str, Any]
Sizes = Mapping[str, Sequence[int]]
"""[text bytes, bytes of code] by name of the module."""

_LANGUAGES = {"c++": "C++", "c": "C", "unknown": "unknown language"}
_NEVER_WORSE = "learned --never-worse"
_ORACLE = "oracle"
_LINES = {
    "learned": ("learned, with exploration", "#0072b2", "o-"),
    "learned without exploration": ("learned, without exploration", "#d55e00", "s--"),
    _ORACLE: ("oracle: best known of each module", "#009e73", "^:"),
}


@dataclasses.dataclass(frozen=True)
class Saving:
    """How much smaller some modules are under one policy than under LLVM's default.

    Attributes:
      modules: number of modules.
      text_percent: by how much the text column is smaller, in percent; negative if it is larger.
      exec_percent: the same for code alone.
      worse: number of modules whose text column is larger.
    """

    modules: int
    text_percent: float
    exec_percent: float
    worse: int


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean and range of a figure over the seeds."""

    mean: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Compute the mean and the range of `values`."""
        return Spread(statistics.fmean(values), min(values), max(values))

    def show(self, digits: int) -> str:
        """Format for a table: the mean, and the range if the values differ."""
        text = f"{self.mean:.{digits}f}"
        if self.min == self.max:
            return text
        return f"{text} ({self.min:.{digits}f}..{self.max:.{digits}f})"


def policies_of(record: Record, iteration: int) -> dict[str, Sizes]:
    """Return the sizes under each policy of the table after some iterations (0: before any).

    The oracle has for each module the smallest object that the baselines reached. From iteration 1
    on, it includes the objects that exploration around the default and the policies learned so far
    reached. It is no policy, because it needs to try the module itself, but it shows what a policy
    could save.
    """
    sizes = record["sizes"]
    fixed: dict[str, Sizes] = sizes["fixed"]
    default = fixed["default"]
    met = [fixed[name] for name in record["baselines"] if name in fixed]
    learned = unexplored = default
    if iteration:
        learned = sizes["learned"][iteration - 1]
        unexplored = sizes["learned without exploration"][iteration - 1]
        met += [sizes["explored"], *sizes["learned"][:iteration]]
    return {
        "learned": learned,
        _NEVER_WORSE: smallest([default, learned], record["modules"]),
        "learned without exploration": unexplored,
        _ORACLE: smallest(met, record["modules"]),
        **fixed,
    }


def smallest(candidates: Sequence[Sizes], modules: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Return each module's sizes with the smallest text column; ties go to the first candidate."""
    return {
        name: min((one[name] for one in candidates if name in one), key=lambda size: size[0])
        for name in modules
    }


def saving(records: Sequence[Record], policy: str, iteration: int, **wanted: str) -> Saving | None:
    """Compute what one policy saves on the held-out modules of all folds of one seed.

    Modules that do not compile under the policy are left out.

    Args:
      records: the records of the seed, one for each fold.
      policy: name of the policy, a key of `policies_of`.
      iteration: number of iterations that the policy has learned.
      **wanted: properties of the modules to take, such as language="c++" or project="zlib".

    Returns:
      The saving; None if there are no such modules.
    """
    pairs = []
    for record in records:
        found = policies_of(record, iteration)
        for name, facts in record["modules"].items():
            asked_for = all(facts[key] == value for key, value in wanted.items())
            if asked_for and name in found[policy]:
                pairs.append((found[policy][name], found["default"][name]))
    if not pairs:
        return None
    percents = []
    for column in (0, 1):
        total = sum(size[column] for size, _ in pairs)
        of_default = sum(size[column] for _, size in pairs)
        percents.append(100 * (1 - total / of_default) if of_default else 0.0)
    worse = sum(size[0] > other[0] for size, other in pairs)
    return Saving(len(pairs), percents[0], percents[1], worse)


def spread(
    records: Sequence[Record], policy: str, iteration: int, **wanted: str
) -> dict[str, Any] | None:
    """Compute `saving` over the seeds: {"modules": int, "text_percent": Spread, ...}, or None."""
    by_seed = collections.defaultdict(list)
    for record in records:
        by_seed[record["seed"]].append(record)
    found = [saving(part, policy, iteration, **wanted) for part in by_seed.values()]
    kept = [one for one in found if one is not None]
    if not kept:
        return None
    figures = {
        name: Spread.of([getattr(one, name) for one in kept])
        for name in ("text_percent", "exec_percent", "worse")
    }
    return {"modules": kept[0].modules, **figures}


def write(records: Sequence[Record], about: Mapping[str, Any], output: pathlib.Path) -> None:
    """Write table.json, table.md, savings.png and savings.svg.

    Args:
      records: the records of all folds, for one or more seeds.
      about: "command", "commit", and "left_out": sizes in bytes of modules that were left out, by
        name.
      output: directory to write to.
    """
    table = summarise(records, about)
    (output / "table.json").write_text(
        json.dumps(table, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    (output / "table.md").write_text(to_markdown(table), encoding="utf-8")
    draw(table["curves"], output)


def summarise(records: Sequence[Record], about: Mapping[str, Any]) -> dict[str, Any]:
    """Compute all figures of the table, as JSON values."""
    iterations = records[0]["iterations"]
    facts = [one for record in records for one in record["modules"].values()]
    languages = [one for one in _LANGUAGES if any(fact["language"] == one for fact in facts)]
    failures = {name: text for record in records for name, text in record["failures"].items()}
    return {
        **about,
        "compiler": records[0]["settings"]["compiler"],
        "corpus_sha256": records[0]["settings"]["corpus_sha256"],
        "seeds": sorted({record["seed"] for record in records}),
        "iterations": iterations,
        "folds": [record["projects"] for record in records if record["seed"] == 0],
        "failures": failures,
        "seconds": sum(record["seconds"] for record in records),
        "policies": [
            {
                "policy": policy,
                "languages": {
                    one: _json(spread(records, policy, iterations, language=one))
                    for one in languages
                },
            }
            for policy in policies_of(records[0], iterations)
        ],
        "projects": _projects(records, iterations),
        "images": inlining_images.summarise(records),
        "curves": [
            {
                "language": language,
                "line": line,
                "text_percent": [
                    _json(spread(records, line, number, language=language))["text_percent"]
                    for number in range(iterations + 1)
                ],
            }
            for language in languages
            for line in _LINES
        ],
    }


def _projects(records: Sequence[Record], iterations: int) -> list[dict[str, Any]]:
    languages = {
        one["project"]: one["language"] for record in records for one in record["modules"].values()
    }
    return [
        {
            "project": project,
            "language": language,
            **{
                policy: _json(spread(records, policy, iterations, project=project))
                for policy in ("learned", _NEVER_WORSE, _ORACLE)
            },
        }
        for project, language in sorted(languages.items())
    ]


def _json(found: Mapping[str, Any] | None) -> dict[str, Any]:
    assert found is not None
    return {
        name: dataclasses.asdict(value) if isinstance(value, Spread) else value
        for name, value in found.items()
    }


def to_markdown(table: Mapping[str, Any]) -> str:
    """Format the table as Markdown."""
    languages = list(table["policies"][0]["languages"])
    header = ["policy"]
    for one in languages:
        modules = table["policies"][0]["languages"][one]["modules"]
        header += [f"{_LANGUAGES[one]}: text", "code", f"worse of {modules}"]
    rows = []
    num_modules = sum(one["modules"] for one in table["policies"][0]["languages"].values())
    for line in table["policies"]:
        compiled = sum(one["modules"] for one in line["languages"].values())
        short = f" (on {compiled} of {num_modules})" if compiled < num_modules else ""
        cells = [f"`{line['policy']}`{short}"]
        for found in line["languages"].values():
            cells += _cells(found)
        rows.append(cells)
    projects = [
        [
            one["project"],
            _LANGUAGES[one["language"]],
            str(one["learned"]["modules"]),
            *_cells(one["learned"]),
            _percent(one[_ORACLE]["text_percent"]),
        ]
        for one in table["projects"]
    ]
    parts = [
        "Savings against LLVM's default at -Oz, in percent of its bytes (positive: smaller), on "
        f"projects that were not learned on: {len(table['folds'])} folds of whole projects, "
        f"{len(table['seeds'])} seeds, {table['iterations']} iterations. Mean (min..max) over the "
        "seeds. *text* is the text column of `llvm-size`, *code* executable sections alone, "
        "*worse* counts modules whose text is larger than under the default. The oracle is the "
        "best object that baselines, exploration and the learned policies came to for each module "
        "itself: an upper line, no policy.",
        markdown_table(header, rows),
        markdown_table(
            ["project", "", "modules", "text", "code", "worse", "oracle: text"], projects
        ),
        inlining_images.to_markdown(table["images"]),
        _notes(table),
    ]
    return "\n\n".join(parts) + "\n"


def _notes(table: Mapping[str, Any]) -> str:
    lines = [
        f"Made by `{table['command']}` at commit {table['commit']} with {table['compiler']} in "
        f"{table['seconds'] / 60:.0f} minutes.",
        *(f"Fold {k + 1}: {', '.join(fold)}." for k, fold in enumerate(table["folds"])),
    ]
    if table["left_out"]:
        named = ", ".join(table["left_out"])
        lines.append(f"{len(table['left_out'])} modules were left out for their size: {named}.")
    if table["failures"]:
        named = "; ".join(table["failures"].values())
        lines.append(f"{len(table['failures'])} modules were left out because of: {named}.")
    return "\n".join(f"- {line}" for line in lines)


def _cells(found: Mapping[str, Any]) -> list[str]:
    return [
        _percent(found["text_percent"]),
        _percent(found["exec_percent"]),
        Spread(**found["worse"]).show(0 if found["worse"]["mean"] % 1 == 0 else 1),
    ]


def _percent(figures: Mapping[str, float]) -> str:
    return Spread(**figures).show(2)


def draw(curves: Sequence[Mapping[str, Any]], output: pathlib.Path) -> None:
    """Draw savings by iteration, one panel for each language, with the range over the seeds.

    Raises:
      UserError: matplotlib is not installed.
    """
    languages = list(dict.fromkeys(one["language"] for one in curves))
    with picture(output / "savings", (4.2 * len(languages), 3.2), 9) as drawn:
        panels = drawn.subplots(1, len(languages), squeeze=False)[0]
        for panel, language in zip(panels, languages, strict=True):
            for curve in (one for one in curves if one["language"] == language):
                label, colour, style = _LINES[curve["line"]]
                numbers = range(len(curve["text_percent"]))
                low, middle, high = (
                    [one[name] for one in curve["text_percent"]] for name in ("min", "mean", "max")
                )
                panel.plot(numbers, middle, style, color=colour, label=label)
                panel.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.axhline(0, color="0.6", linewidth=0.8)
            panel.locator_params(axis="x", integer=True)
            panel.set(title=f"{_LANGUAGES[language]}, held-out projects", xlabel="iteration")
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("saving against -Oz, % of text")
        panels[0].legend(fontsize=7)
