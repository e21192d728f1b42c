"""By how much images differ in size, as all studies of inlining count it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from environments.inlining.linking.images import LOADED_PARTS

Sizes = Mapping[str, int]
"""Bytes of each part of an image."""

FIGURES = {
    "code": ("text_bytes",),
    "tables": ("unwind_bytes",),
    "rodata": ("rodata_bytes",),
    "loaded": LOADED_PARTS,
    "file": ("file_bytes",),
}
"""Name of a figure -> the parts of an image that are added up."""


def change_percent(size: float | None, default: float | None) -> float | None:
    """Return a change; None if one of both is not there, or there was nothing."""
    return None if size is None or not default else 100 * (size / default - 1)


def changes_of(images: Iterable[tuple[Sizes, Sizes]]) -> dict[str, float | None]:
    """Return by how much images together differ from the default's, in percent, by figure.

    Args:
      images: the sizes of each image, and those of the default's.
    """
    pairs = list(images)
    return {
        figure: change_percent(
            *(sum(pair[side][part] for pair in pairs for part in parts) for side in (0, 1))
        )
        for figure, parts in FIGURES.items()
    }
