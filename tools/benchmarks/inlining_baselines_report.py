"""The table and the picture of `inlining_baselines.py`, computed from its records."""

from __future__ import annotations

import functools
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.benchmarks import inlining_images
from tools.benchmarks.inlining_report import Spread, smallest
from tools.benchmarks.shared import markdown_table, picture

Record = Mapping[str, Any]
Sizes = Mapping[str, Sequence[int]]
"""[text bytes, bytes of code] by name of the module."""
Measure = Callable[[Record], float]
"""The record of a seed -> a figure."""

ORACLE = "oracle"
_BEGUN_WITH = ("default", "ppo", "es")
_TEXT, _CODE = 0, 1
_IMAGE = "code + unwind + read-only"
_FILE = "stripped file"
_BASELINE_STYLES = {"ppo": ("PPO", "#cc79a7"), "es": ("ES", "#e69f00")}
_EXPLORING, _HEDGE, _PLAIN = "exploring, buckets", "exploring, hedge", "not exploring, buckets"
_STYLES = {
    _EXPLORING: ("exploring, buckets", "#0072b2", "o"),
    _HEDGE: ("exploring, Hedge", "#d55e00", "s"),
    _PLAIN: ("not exploring, buckets", "#56b4e9", "v"),
    "not exploring, hedge": ("not exploring, Hedge", "#009e73", "^"),
}


def sizes_of(record: Record, part: str, policy: str, iteration: int = 0) -> dict[str, Any]:
    """Return the sizes of a part's modules under a policy.

    Args:
      record: the record of a seed.
      part: "train" or "heldout".
      policy: a baseline, or a variant of BC-Max; "oracle" or "oracle of VARIANT" for the smallest
        object of each module under the baselines, and under the variant's policies so far.
      iteration: the iteration of the variant; at 0 it is the default.
    """
    found = record["parts"][part]
    name = policy.removeprefix("oracle of ")
    of_name = [f"{name}/{number}" for number in range(1, iteration + 1)]
    if policy.startswith(ORACLE):
        met = [found[one]["sizes"] for one in (*_BEGUN_WITH, *of_name)]
        return dict(smallest(met, met[0]))
    if name in found:
        return dict(found[name]["sizes"])
    return dict(found[of_name[-1] if of_name else "default"]["sizes"])


def saving(sizes: Sizes, default: Sizes, column: int) -> float:
    """Return by how much modules are smaller than under the default, in percent.

    A module that did not compile under the policy is left out.
    """
    size = sum(one[column] for one in sizes.values())
    of_default = sum(default[name][column] for name in sizes)
    return 100 * (1 - size / of_default) if of_default else 0.0


def measure(part: str, column: int, policy: str, iteration: int) -> Measure:
    """Return a function that computes what a policy saves in a part's modules."""

    def compute(record: Record) -> float:
        default = sizes_of(record, part, "default")
        return saving(sizes_of(record, part, policy, iteration), default, column)

    return compute


def worse(policy: str, iteration: int) -> Measure:
    """Return a function that counts the held-out modules whose text is larger than by default."""

    def compute(record: Record) -> float:
        default = sizes_of(record, "heldout", "default")
        sizes = sizes_of(record, "heldout", policy, iteration)
        return sum(one[_TEXT] > default[name][_TEXT] for name, one in sizes.items())

    return compute


def image_saving(title: str, policy: str, iteration: int) -> Measure:
    """Return a function that computes what held-out images save, the mean over the projects.

    Args:
      title: a key of `inlining_images.PARTS`.
      policy: a baseline, or a variant of BC-Max.
      iteration: the iteration of the variant; at 0 it is the default.
    """

    def compute(record: Record) -> float:
        found = record["parts"]["heldout"]
        name = policy if policy in found else f"{policy}/{iteration}" if iteration else "default"
        parts = inlining_images.PARTS[title]
        images = found[name]["images"]
        return statistics.fmean(inlining_images.saving_percent(one, parts) for one in images)

    return compute


def over_seeds(records: Sequence[Record], compute: Measure) -> Spread:
    """Return the mean and range of a figure over the seeds."""
    return Spread.of([compute(record) for record in records])


def write(records: Sequence[Record], about: str, output: pathlib.Path) -> None:
    """Write table.md, savings.png and savings.svg; `about` says how they were made."""
    text = to_markdown(records, about)
    (output / "table.md").write_text(text, encoding="utf-8")
    draw(records, output)


def to_markdown(records: Sequence[Record], about: str) -> str:
    """Format the tables."""
    of_default = records[0]["parts"]["heldout"]["default"]["sizes"]
    header = ["policy", "learned on: text", "held out: text", "code", f"worse of {len(of_default)}"]
    rows = [_row(records, name) for name in ("ppo", "es", ORACLE, *records[0]["written"])]
    return "\n\n".join(
        [
            f"{about}\n\nSeeds: {len(records)}. Percent saved against LLVM's default at -Oz, mean "
            "(range over seeds). BC-Max begins with default, ppo and es; the oracle is the best of "
            "these three in each module. Images are those of held-out projects, mean.",
            markdown_table([*header, "images", "files"], rows),
            "Text of held-out modules, and of the best policy so far in each module, by iteration:",
            markdown_table(
                ["policy", *map(str, range(1, records[0]["iterations"] + 1))],
                [_by_iteration(records, name) for name in records[0]["written"]],
            ),
        ]
    )


def _row(records: Sequence[Record], policy: str) -> list[str]:
    """Return the row of a policy; of BC-Max, of the policy that training wrote."""

    def show(make: Callable[..., Measure], *arguments: Any, digits: int = 2) -> str:
        """Format what `make(*arguments, iteration of the policy)` measures."""
        return over_seeds(
            records, lambda record: make(*arguments, record["written"].get(policy, 0))(record)
        ).show(digits)

    cells = [
        show(measure, "train", _TEXT, policy),
        show(measure, "heldout", _TEXT, policy),
        show(measure, "heldout", _CODE, policy),
        show(worse, policy, digits=1),
    ]
    if policy == ORACLE:
        return [policy, *cells, "", ""]
    return [policy, *cells, *(show(image_saving, title, policy) for title in (_IMAGE, _FILE))]


def _by_iteration(records: Sequence[Record], policy: str) -> list[str]:
    cells = []
    for number in range(1, records[0]["iterations"] + 1):
        own, best = (
            over_seeds(records, measure("heldout", _TEXT, name, number))
            for name in (policy, f"oracle of {policy}")
        )
        cells.append(f"{own.show(2)}, best {best.show(2)}")
    return [policy, *cells]


def draw(records: Sequence[Record], output: pathlib.Path) -> None:
    """Draw Fig. 1 and 2 of the BC-Max paper, with the range over the seeds.

    Raises:
      UserError: matplotlib is not installed.
    """
    with picture(output / "savings", (8.4, 6.2), 8) as drawn:
        panels = drawn.subplots(2, 2).flat
        for panel, (title, make, variants, has_oracle) in zip(panels, _PANELS, strict=True):
            panel.set_title(title)
            _panel(panel, records, make, variants, has_oracle)


_LEARNED_ON = functools.partial(measure, "train", _TEXT)
_WEIGHTS = (_EXPLORING, _HEDGE)
_EXPLORED = (_EXPLORING, _PLAIN)
# Title, what is measured, variants, and whether their oracles are drawn: Fig. 1 and Fig. 2.
_PANELS = (
    ("modules learned on", _LEARNED_ON, _WEIGHTS, True),
    ("held-out projects, linked", functools.partial(image_saving, _IMAGE), _WEIGHTS, False),
    ("modules learned on", _LEARNED_ON, _EXPLORED, True),
    ("held-out modules", functools.partial(measure, "heldout", _TEXT), _EXPLORED, True),
)


def _panel(
    panel: Any,
    records: Sequence[Record],
    make: Callable[[str, int], Measure],
    variants: Sequence[str],
    has_oracle: bool,
) -> None:
    """Draw the savings of some variants, of their oracles, and of the baselines."""
    iterations = range(records[0]["iterations"] + 1)

    def plot(policy: str, label: str, colour: str, style: str) -> None:
        found = [over_seeds(records, make(policy, number)) for number in iterations]
        panel.plot(iterations, [one.mean for one in found], style, color=colour, label=label)
        low, high = [one.min for one in found], [one.max for one in found]
        panel.fill_between(iterations, low, high, color=colour, alpha=0.15, linewidth=0)

    for policy, (label, colour) in _BASELINE_STYLES.items():
        plot(policy, label, colour, "--")
    for variant in variants:
        label, colour, marker = _STYLES[variant]
        plot(variant, f"BC-Max, {label}", colour, f"{marker}-")
        if has_oracle:
            plot(f"oracle of {variant}", f"oracle of {label}", colour, f"{marker}:")
    panel.set(xlabel="iteration of BC-Max", ylabel="saving against -Oz, %")
    panel.set_xticks(list(iterations))
    panel.grid(alpha=0.3)
    panel.legend(fontsize=6)
