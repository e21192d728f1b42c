"""Linked images of a corpus's projects under a policy, compared with LLVM's own decisions."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from environments.errors import Failure, UserError
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.tasks import WriteObject
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.linking.images import ImageSize, link


def link_projects(
    collector: Collector,
    modules: Sequence[Module],
    policy: Policy,
    progress: Callable[[int], None],
    say_fn: Callable[[str], None],
) -> dict[str, ImageSize]:
    """Compile modules under a policy and link the objects of each project.

    Args:
      collector: compiles.
      modules: modules that all compile.
      policy: decides.
      progress: is called with 1 after each module.
      say_fn: is told which projects cannot be linked, and why; they are left out.

    Returns:
      The sizes of the images by project.

    Raises:
      UserError: a module does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="tfrl-link-") as scratch:
        directory = pathlib.Path(scratch)
        written = collector.map(WriteObject(policy, directory), modules, progress)
        objects: dict[str, list[pathlib.Path]] = {}
        for module, path in zip(modules, written, strict=True):
            if isinstance(path, Failure):
                # An image without it would look smaller.
                raise UserError(f"{path.message}; leave it out of the corpus to link the others")
            objects.setdefault(module.project, []).append(path)
        images = {}
        for project, paths in objects.items():
            try:
                images[project] = link(paths, directory / f"{project}.image")
            except UserError as error:
                # The linker names objects by paths that nobody else has seen.
                say_fn(f"not linked: {error}".replace(f"{directory}{os.sep}", ""))
        return images


def images_json(
    images: dict[str, ImageSize], default_images: dict[str, ImageSize]
) -> list[dict[str, Any]]:
    """Return what --json shows of the projects that could be linked both ways."""
    both = sorted(images.keys() & default_images.keys())
    return [
        {
            "project": project,
            **dataclasses.asdict(images[project]),
            **{
                f"default_{part}": size
                for part, size in dataclasses.asdict(default_images[project]).items()
            },
        }
        for project in both
    ]
