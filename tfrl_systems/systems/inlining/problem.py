"""The options of inlining: which modules to decide in, and with which compiler."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.caches.table import COMPILES
from environments.inlining.linking.objective import COPIES
from environments.machine import num_processors
from tfrl_systems.settings import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiling:
    """How modules are compiled.

    Attributes:
      corpus: directory of the modules to decide in (tfrl corpus build makes one).
      compiler: "embedded" for the LLVM that came with the installation, or a clang of version 17 or
        newer, as a path or a name on PATH.
      cache: file that keeps compiles, so that none is made twice.
    """

    corpus: pathlib.Path = option(metavar="DIR")
    compiler: str = option("embedded", metavar="embedded|CLANG")
    cache: pathlib.Path = option(COMPILES.path, metavar="FILE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Compiling):
    """What to learn on.

    Attributes:
      validation: directory of modules to choose the policy on; by default some projects of the
        corpus, which are then not learned on.
      holdout: directory of modules to measure each policy on; they are never used to learn or to
        choose a policy.
    """

    validation: pathlib.Path | None = option(None, metavar="DIR")
    holdout: pathlib.Path | None = option(None, metavar="DIR")


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """What is to become smaller.

    Attributes:
      objective: what policies are judged by and rewarded for. "image" counts code, unwind tables
        and read-only data, a byte of a function that n objects of the project hold as 1/n, because
        a linker keeps one copy; "code" counts the code alone in the same way, for programs without
        tables; a number between 0 (code) and 1 (image) is what a byte counts that is not code;
        "object" counts the objects as they are.
      label_objective: how bc_max counts copies where it learns from changed decisions: "image" 1/n,
        "between" 1/sqrt(n), "object" 1.
    """

    objective: str = option("image", metavar="image|code|object|WEIGHT")
    label_objective: str = option("between", choices=COPIES)


SCOPES = {"linkonce": "callee_is_linkonce", "all": ""}
"""Where a policy may depart from LLVM: the feature that is 1 there, "" for everywhere."""


@dataclasses.dataclass(frozen=True)
class ScopeConfig:
    """Where a policy may depart from LLVM's own decisions.

    Attributes:
      scope: "linkonce" for calls of C++'s inline functions and templates; what was learned of other
        callees, and so of all of C, made unseen projects larger. "all" for all calls, as policies
        for LLVM's own modes need it (tfrl export --format mlgo): these do not know linkage.
    """

    scope: str = option("linkonce", choices=tuple(SCOPES))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Compiling):
    """What to compare policies on.

    Attributes:
      never_worse: also report sizes where each module keeps the smaller of the policy's object and
        the default's, and what compiling twice costs; all compiles are then made anew, without the
        cache.
      link: also link the objects of each project, and compare the images.
      workers: compilers that run at the same time, by default one for each processor; the result
        does not depend on it.
    """

    never_worse: bool = False
    link: bool = False
    workers: int = option(num_processors(), metavar="N", minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmarks:
    """What to measure.

    Attributes:
      corpus: directory of the modules to compile; by default a small built-in corpus.
      compiler: clang to compare with, as a path or a name on PATH; by default the newest on PATH.
      policy: policy that decides, by name or directory; by default one of the usual size is fitted.
      modules: number of modules of the corpus to compile, evenly spread by size.
      rounds: how often each module is compiled in each way.
      workers: compilers that run at the same time for trajectories_per_second; by default one for
        each processor.
      huge_calls: calls of the largest function of huge_function_cpu_over_plain_...; the others have
        an eighth and half as many.
    """

    corpus: pathlib.Path | None = option(None, metavar="DIR")
    compiler: str | None = option(None, metavar="CLANG")
    policy: str | None = option(None, metavar="DIR|NAME")
    modules: int = option(12, metavar="N", minimum=1)
    rounds: int = option(5, metavar="N", minimum=1)
    workers: int = option(num_processors(), metavar="N", minimum=1)
    huge_calls: int = option(18000, metavar="N", minimum=1)
