"""Linked images of a corpus's projects under a policy, compared with LLVM's own decisions."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from environments.errors import Failure, UserError
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import WriteObject
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.linking.images import ImageSize, link
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.problem import Evaluation
from tfrl_systems.systems.inlining.workers import make_collector


def link_projects(
    settings: Evaluation, modules: Sequence[Module], policy: Policy, reporter: Reporter
) -> dict[str, ImageSize]:
    """Compile modules under a policy and link the objects of each project.

    Args:
      settings: the compiler, and how many of them work at the same time.
      modules: modules that all compile.
      policy: the policy.
      reporter: receives the progress.

    Returns:
      The sizes of the images by project. Projects that cannot be linked are left out and reported.
    """
    collect = Collect.with_workers(settings.workers)
    with (
        tempfile.TemporaryDirectory(prefix="tfrl-link-") as scratch,
        make_collector(settings.compiler, TrajectoryStore(), collect) as collector,
    ):
        directory = pathlib.Path(scratch)
        progress = reporter.task(f"{policy.name}, to link", len(modules))
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
                reporter.say(f"not linked: {error}")
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
