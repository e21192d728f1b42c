"""Savings in linked images, computed from the records of `inlining_tables.py`."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tools.benchmarks.shared import markdown_table

Record = Mapping[str, Any]
# Title -> the parts of an image that are added up.
PARTS = {
    "code": ("text_bytes",),
    "code + unwind + read-only": ("text_bytes", "unwind_bytes", "rodata_bytes"),
    "stripped file": ("file_bytes",),
}


def saving_percent(image: Mapping[str, Any], parts: Sequence[str]) -> float:
    """Return by how much these parts of an image are smaller than the default's, in percent."""
    size, default = (sum(image[f"{prefix}{part}"] for part in parts) for prefix in ("", "default_"))
    return 100 * (1 - size / default) if default else 0.0


def by_project(records: Sequence[Record], iteration: int) -> dict[str, dict[str, list[float]]]:
    """Return the savings of each project's image: one for each seed, by title of `PARTS`."""
    found: dict[str, dict[str, list[float]]] = collections.defaultdict(
        lambda: {title: [] for title in PARTS}
    )
    for record in records:
        for image in record["images"][iteration - 1]:
            for title, parts in PARTS.items():
                found[image["project"]][title].append(saving_percent(image, parts))
    return dict(sorted(found.items()))


def means(records: Sequence[Record], iteration: int) -> dict[str, dict[str, float]]:
    """Return the mean saving over projects and seeds, by language and by title of `PARTS`."""
    language_of = {
        one["project"]: one["language"] for record in records for one in record["modules"].values()
    }
    savings = by_project(records, iteration)
    return {
        language: {
            title: statistics.fmean(
                value
                for project, of in savings.items()
                if language_of[project] == language
                for value in of[title]
            )
            for title in PARTS
        }
        for language in sorted({language_of[project] for project in savings})
    }


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Compute all figures of linked images, as JSON values."""
    iterations = records[0]["iterations"]
    return {
        "projects": by_project(records, iterations),
        "means_by_iteration": [means(records, 1 + k) for k in range(iterations)],
    }


def to_markdown(summary: Mapping[str, Any]) -> str:
    """Format the figures as Markdown."""
    rows = [
        [project, *(_spread(savings[title]) for title in PARTS)]
        for project, savings in summary["projects"].items()
    ]
    curves = [
        [language, str(1 + k), *(f"{of[language][title]:.2f}" for title in PARTS)]
        for k, of in enumerate(summary["means_by_iteration"])
        for language in of
    ]
    return "\n\n".join(
        [
            "Linked images: each project's objects linked whole, copies merged; savings in "
            "percent, mean (min..max) over the seeds.",
            markdown_table(["project", *PARTS], rows),
            markdown_table(["language", "iteration", *PARTS], curves),
        ]
    )


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.2f}"
    if min(values) == max(values):
        return mean
    return f"{mean} ({min(values):.2f}..{max(values):.2f})"
