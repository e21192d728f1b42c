"""What is asked for: which modules to decide in, and with which compiler."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.caches import cache_directory
from tfrl_systems.drivers.collect import num_processors
from tfrl_systems.experiments.settings import option


def default_compiles() -> pathlib.Path:
    """Return the file in the user's cache where compiles are kept."""
    return cache_directory() / "compiles.db"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiling:
    """How modules are compiled.

    Attributes:
      corpus: modules to decide in (tfrl corpus build makes such a directory).
      compiler: the LLVM that came with the installation, "embedded", or a clang of version 17 or
        newer: a path or a name on PATH.
      cache: the file where compiles are kept, so that none is made twice.
    """

    corpus: pathlib.Path = option(metavar="DIR")
    compiler: str = option("embedded", metavar="embedded|CLANG")
    cache: pathlib.Path = option(default_compiles(), metavar="FILE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Compiling):
    """What is learned on.

    Attributes:
      holdout: modules to measure each policy on; never used to learn or to choose.
    """

    holdout: pathlib.Path | None = option(None, metavar="DIR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Compiling):
    """What policies are compared on.

    Attributes:
      never_worse: also keep, for each module, the smaller of the policy's object and the default's,
        and measure what compiling twice costs; nothing is recalled from the cache for it.
      workers: compilers that run at the same time; the result does not depend on it; by default one
        for each processor.
    """

    never_worse: bool = False
    workers: int = option(num_processors(), metavar="N", minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmarks:
    """What is measured.

    Attributes:
      corpus: modules to compile; by default a few that come along.
      compiler: the clang to compare with: a path or a name on PATH; by default the newest on PATH.
      policy: the policy that decides, by name or directory.
      modules: how many of the corpus, evenly spread by size.
      rounds: how often each is compiled in each way.
      workers: for trajectories_per_second; by default one for each processor.
    """

    corpus: pathlib.Path | None = option(None, metavar="DIR")
    compiler: str | None = option(None, metavar="CLANG")
    policy: str | None = option(None, metavar="DIR|NAME")
    modules: int = option(12, metavar="N", minimum=1)
    rounds: int = option(5, metavar="N", minimum=1)
    workers: int = option(num_processors(), metavar="N", minimum=1)
