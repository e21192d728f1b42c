"""The corpora that a training run learns on and is measured on."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.corpus.modules import Corpus, Module
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.problem import Problem

_SET_ASIDE = 0.2


@dataclasses.dataclass(frozen=True)
class Corpora:
    """The corpora and the compiler of a training run.

    Attributes:
      holdout: the corpus to measure policies on; None to measure on `corpus`.
      compiler: identity of the compiler.
    """

    corpus: Corpus
    validation: Corpus | None
    holdout: Corpus | None
    compiler: str

    @classmethod
    def of(cls, problem: Problem) -> Corpora:
        """Load the corpora and find the compiler that a problem names.

        Raises:
          UserError: one of them is not there.
        """
        return cls(
            Corpus.load(problem.corpus),
            Corpus.load(problem.validation) if problem.validation else None,
            Corpus.load(problem.holdout) if problem.holdout else None,
            make_compiler(problem.compiler).identity,
        )

    def settings(self) -> dict[str, Any]:
        """Return what of the corpora and the compiler decides the result, as JSON values."""
        return {
            "compiler": self.compiler,
            "corpus_sha256": corpus_digest(self.corpus),
            "validation_sha256": corpus_digest(self.validation) if self.validation else None,
            "holdout_sha256": corpus_digest(self.holdout) if self.holdout else None,
        }

    def describe(self, agent: str) -> dict[str, Any]:
        """Return what policy.json says about the corpora, the compiler and the policy's use."""
        bc_max = "call_site_policy.CallSitePolicy"
        loader = bc_max if agent == "bc_max" else "actor_policy.ActorPolicy"
        return {
            "compiler": self.compiler,
            "corpus": self.corpus.directory.resolve().name,
            "corpus_sha256": corpus_digest(self.corpus),
            "use": [
                "tfrl evaluate inlining --policy DIR --corpus CORPUS",
                f"tfrl_systems.systems.inlining.policy.{loader}.load(DIR)",
                "tf.saved_model.load(DIR)",
            ],
        }

    def divided(self) -> tuple[tuple[Module, ...], tuple[Module, ...]]:
        """Return the modules to learn on, and those to choose the policy on."""
        if self.validation is not None:
            return self.corpus.modules, self.validation.modules
        return set_aside(self.corpus)

    def warn_of_overlap(self, reporter: Reporter) -> None:
        """Warn if some modules are both learned on and judged by."""
        learned_on = {module.sha256 for module in self.corpus.modules}
        for option, corpus in (("--validation", self.validation), ("--holdout", self.holdout)):
            modules = corpus.modules if corpus is not None else ()
            shared = [module.name for module in modules if module.sha256 in learned_on]
            if shared:
                reporter.say(
                    f"warning: {len(shared)} of the modules in {option} are in --corpus too, for "
                    f"instance {shared[0]}; what is measured on them says nothing about new code"
                )


def set_aside(corpus: Corpus) -> tuple[tuple[Module, ...], tuple[Module, ...]]:
    """Divide a corpus into modules to learn on and modules to choose the policy on.

    Whole projects are set aside, about a fifth of the modules, chosen by their names alone. Of a
    single project a fifth of its modules is set aside; a single module has to do for both.
    """
    if len(corpus.modules) == 1:
        return corpus.modules, corpus.modules
    parts = list(corpus.projects.values())
    if len(parts) == 1:
        parts = [(module,) for module in parts[0]]
    parts.sort(key=lambda part: hashlib.sha256(part[0].name.encode()).digest())
    chosen: list[Module] = []
    for part in parts[:-1]:
        if not chosen or len(chosen) + len(part) <= _SET_ASIDE * len(corpus.modules):
            chosen += part
    names = {module.name for module in chosen}
    rest = tuple(module for module in corpus.modules if module.name not in names)
    return rest, tuple(sorted(chosen, key=lambda module: module.name))


def small_modules(
    modules: Sequence[Module], max_bitcode_bytes: int, reporter: Reporter
) -> tuple[Module, ...]:
    """Return the modules that are not too large, 0 for no limit; report how many are left out."""
    small = tuple(
        module
        for module in modules
        if not max_bitcode_bytes or module.path.stat().st_size <= max_bitcode_bytes
    )
    if len(small) < len(modules):
        reporter.say(
            f"{len(modules) - len(small)} of {len(modules)} modules are larger than "
            f"{max_bitcode_bytes} bytes and not learned on (--set max_bitcode_bytes=0 takes them "
            "too)"
        )
    return small


def corpus_digest(corpus: Corpus) -> str:
    """Return a hash of the names, contents and compile commands of a corpus's modules."""
    try:
        lines = [
            f"{module.name}\0{module.sha256}\0{' '.join(module.command)}"
            for module in corpus.modules
        ]
    except OSError as error:
        raise UserError(
            f"{corpus.directory}: expected to read its modules, found: {error}; build it again"
        ) from error
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
