"""By how much images differ, and what inlining's policies save, from what `inlining.measure` keeps.

A record has `parts`: "heldout", and perhaps "train", with `languages` of the modules and
`policies`: `sizes` [text, code] by module, and linked `images`. The policies of a variant of BC-Max
are called VARIANT/ITERATION, and `written` has the iteration that each variant chose.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from environments.inlining.linking.images import LOADED_PARTS
from tools.studies.study import Record, Records

Sizes = Mapping[str, Sequence[int]]
"""[text bytes, bytes of code] by name of the module."""

Parts = Mapping[str, int]
"""Bytes of each part of an image."""

ORACLE, NEVER_WORSE = "oracle", "--never-worse"
_LANGUAGES = {"c++": "C++", "c": "C"}
_TEXT, _CODE = 0, 1
_FIGURES = ("code_percent", "loaded_percent", "file_percent")
# Figure of an image -> its parts that are added up.
_PARTS_OF = {
    "code": ("text_bytes",),
    "tables": ("unwind_bytes",),
    "rodata": ("rodata_bytes",),
    "loaded": LOADED_PARTS,
    "file": ("file_bytes",),
}


def change_percent(size: float | None, default: float | None) -> float | None:
    """Return a change; None if one of both is not there, or there was nothing."""
    return None if size is None or not default else 100 * (size / default - 1)


def changes_of(images: Iterable[tuple[Parts, Parts]]) -> dict[str, float | None]:
    """Return by how much images together differ from the default's, in percent, by figure.

    Args:
      images: the sizes of each image, and those of the default's.
    """
    pairs = list(images)
    return {
        figure: change_percent(
            *(sum(pair[side][part] for pair in pairs for part in parts) for side in (0, 1))
        )
        for figure, parts in _PARTS_OF.items()
    }


def image_savings(image: Mapping[str, Any]) -> dict[str, float]:
    """Return what an image saves against the default's, in percent, by figure."""
    default = {name.removeprefix("default_"): image[name] for name in image if "default_" in name}
    changes = changes_of([(image, default)])
    return {figure: 0.0 - (changes[figure.removesuffix("_percent")] or 0.0) for figure in _FIGURES}


def smallest(candidates: Sequence[Sizes]) -> dict[str, Sequence[int]]:
    """Return the sizes of the smallest object of each module; ties go to the first candidate.

    A module counts that compiled under the first candidate.
    """
    return {
        name: min(
            (sizes[name] for sizes in candidates if name in sizes), key=lambda size: size[_TEXT]
        )
        for name in candidates[0]
    }


def saving(sizes: Sizes, default: Sizes, column: int) -> float:
    """Return by how much modules are smaller than under the default, in percent.

    A module that did not compile under one of both is left out.
    """
    both = sizes.keys() & default.keys()
    of_default = sum(default[name][column] for name in both)
    return 100 * (1 - sum(sizes[name][column] for name in both) / of_default) if of_default else 0.0


def sizes_of(policies: Mapping[str, Any], name: str) -> Sizes:
    """Return a policy's sizes; of the oracle of some policies, "oracle of A|B", the smallest."""
    members = name.removeprefix(f"{ORACLE} of ").split("|")
    return smallest([policies[member]["sizes"] for member in members])


def shown(record: Record) -> dict[str, str]:
    """Return the policies that tables show: title -> name for `sizes_of`."""
    policies = record["parts"]["heldout"]["policies"]
    single = [name for name in policies if "/" not in name]
    titles = {}
    for variant, number in record["written"].items():
        titles[variant] = f"{variant}/{number}"
    first = next(iter(record["written"]))
    if "begin" in record:
        titles[ORACLE] = f"{ORACLE} of {'|'.join(single)}"
    else:
        titles[f"{first}, {NEVER_WORSE}"] = f"{ORACLE} of default|{titles[first]}"
        tried = [name for name in policies if name in single or name.startswith(f"{first}/")]
        titles[ORACLE] = f"{ORACLE} of {'|'.join(tried)}"
    return titles | {name: name for name in single if name != "default"}


def _by_seed(records: Records) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of each seed, one for each fold."""
    groups: dict[int, list[Record]] = collections.defaultdict(list)
    for record in records:
        groups[record["seed"]].append(record)
    yield from groups.items()


def _together(
    records: Records, part: str, names: Sequence[str], language: str = ""
) -> tuple[dict[str, Sequence[int]], dict[str, Sequence[int]]]:
    """Return the sizes of a policy and of the default, in all folds; `names` is one for each."""
    sizes: dict[str, Sequence[int]] = {}
    default: dict[str, Sequence[int]] = {}
    for record, name in zip(records, names, strict=True):
        measured = record["parts"][part]
        for wanted, collected in ((name, sizes), ("default", default)):
            for module, size in sizes_of(measured["policies"], wanted).items():
                if language in ("", measured["languages"][module]):
                    collected[module] = size
    return sizes, default


def _figures(sizes: Sizes, default: Sizes) -> dict[str, float]:
    both = sizes.keys() & default.keys()
    return {
        "text_percent": saving(sizes, default, _TEXT),
        "code_percent": saving(sizes, default, _CODE),
        "worse": sum(sizes[name][_TEXT] > default[name][_TEXT] for name in both),
        "modules": len(both),
    }


def _languages(records: Records) -> list[str]:
    present = {
        language
        for record in records
        for language in record["parts"]["heldout"]["languages"].values()
    }
    return [language for language in _LANGUAGES if language in present]


def of_languages(records: Records) -> Iterator[Record]:
    """Yield what each policy saves in the modules of each language, for each seed."""
    for seed, folds in _by_seed(records):
        for title in shown(folds[0]):
            names = [shown(record)[title] for record in folds]
            for language in _languages(records):
                sizes, default = _together(folds, "heldout", names, language)
                about = {"policy": title, "language": _LANGUAGES[language], "seed": seed}
                yield {**about, **_figures(sizes, default)}


def _images(record: Record, name: str) -> list[Record]:
    return [
        {"project": image["project"], **image_savings(image)}
        for image in record["parts"]["heldout"]["policies"][name]["images"]
    ]


def of_images(records: Records) -> Iterator[Record]:
    """Yield what the first variant's written policy saves in each project's image."""
    for record in sorted(records, key=lambda record: record.get("held_out", [])):
        yield from _images(record, next(iter(shown(record).values())))


def of_parts(records: Records) -> Iterator[Record]:
    """Yield what each policy saves where it learned, where it did not, and in images."""
    for record in records:
        for title, name in shown(record).items():
            held_out = _figures(*_together([record], "heldout", [name]))
            train = saving(*_together([record], "train", [name]), _TEXT)
            images = _images(record, name) if not name.startswith(ORACLE) else []
            yield {
                **{"policy": title, "train_percent": train, **held_out},
                **{
                    figure: statistics.fmean(image[figure] for image in images)
                    for figure in _FIGURES
                    if images and figure != "code_percent"
                },
            }


def points(records: Records) -> Iterator[Record]:
    """Yield the points of the curves: what policies and their oracles save by iteration.

    Iteration 0 is the default.
    """
    for _, folds in _by_seed(records):
        for variant in folds[0]["written"]:
            policies = folds[0]["parts"]["heldout"]["policies"]
            names = [name for name in policies if name.startswith(f"{variant}/")]
            for number in range(len(names) + 1):
                met = ["default", *names[:number]]
                oracle = f"{ORACLE} of {'|'.join(met)}"
                for line, name in ((variant, met[-1]), (f"{ORACLE} of {variant}", oracle)):
                    percent = saving(*_together(folds, "heldout", [name] * len(folds)), _TEXT)
                    about = {"panel": "held-out modules", "line": line}
                    yield {**about, "iteration": number, "value": percent}
                images = [image for fold in folds for image in _images(fold, met[-1])]
                if images:
                    percent = statistics.fmean(image["loaded_percent"] for image in images)
                    about = {"panel": "held-out projects, linked", "line": variant}
                    yield {**about, "iteration": number, "value": percent}
