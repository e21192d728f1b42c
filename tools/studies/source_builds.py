"""Whole projects of the corpus, compiled and linked by a stock clang and lld."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.corpus.units import CompileUnit
from environments.inlining.heuristics import Policy
from environments.inlining.linking.images import read_image_size
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import Toolchain
from tools.distributions import default_cache, download_all
from tools.fetch_corpus import extract, project_units, read_projects
from tools.studies.cmake_builds import RUNGS, Compiler

_RUNG = RUNGS["gc-icf"]
_SHAPE = ("-DNDEBUG", "-fPIC", *_RUNG.compiling)
_LINKED = ("-fuse-ld=lld", *_RUNG.linking, "-Wl,--build-id=none,--strip-all")
_LIBRARIES = ("-lm", "-pthread")
_TIMEOUT_S = 900.0


def sources_of(name: str, directory: pathlib.Path) -> list[CompileUnit]:
    """Download and unpack a project; return all its sources."""
    matches = [project for project in read_projects() if project.name == name]
    if not matches:
        raise UserError(f"expected a project of corpus_projects.json, found {name!r}")
    project = dataclasses.replace(matches[0], max_sources=None)
    downloaded = download_all({name: project}, default_cache("sdists"))
    return project_units(project, extract(project, downloaded[name], directory).absolute())


@dataclasses.dataclass(frozen=True)
class SourceBuild:
    """Compiles and links one project.

    Attributes:
      project: its name.
      units: its sources.
      toolchain: the clang, and what plugins for it are built with.
      policy: the policy.
      image: the file that is linked; other files lie beside it.
    """

    project: str
    units: Sequence[CompileUnit]
    toolchain: Toolchain
    policy: Policy
    image: pathlib.Path

    @property
    def plugin(self) -> pathlib.Path:
        """The plugin that holds the policy."""
        return build_plugin(self.toolchain, source_of(self.policy))

    def compile(self, name: str, *options: str, **environment: str) -> list[pathlib.Path]:
        """Compile all sources into a directory; return the objects."""
        directory = self.image.with_name(name)
        directory.mkdir()
        objects = []
        for number, unit in enumerate(self.units):
            objects.append(directory / f"{number}.o")
            compiler = self._clang.c if unit.language == "c" else self._clang.cxx
            words = [*_SHAPE, *unit.argument_sets[0], *options, "-c", unit.source]
            self._run([compiler, *words, "-o", objects[-1]], environment, unit.directory)
        return objects

    def link(
        self, objects: Sequence[pathlib.Path], *options: str, **environment: str
    ) -> dict[str, int]:
        """Link objects to a shared library; return its sizes."""
        words = ["-Oz", "-shared", *_LINKED, *options, *objects, *_LIBRARIES, "-o", self.image]
        self._run([self._clang.cxx, *words], environment, self.image.parent)
        return dataclasses.asdict(read_image_size(self.image.read_bytes()))

    @property
    def _clang(self) -> Compiler:
        return Compiler(self.toolchain.clang)

    def _run(
        self, command: Sequence[Any], environment: Mapping[str, str], directory: pathlib.Path
    ) -> None:
        done = subprocess.run(
            [str(word) for word in command], env={**os.environ, **environment}, cwd=directory,
            capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UserError(
                f"{self.project}: expected clang to end well, found {done.stderr[:300]}"
            )
