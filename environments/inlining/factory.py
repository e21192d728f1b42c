"""Make the inlining environment from names: of a corpus, a compiler, and what is to be smaller."""

from __future__ import annotations

import os
from typing import Any

from environments.contexts import Named
from environments.errors import UserError
from environments.inlining.compilers.compiler import Compiler, make_compiler
from environments.inlining.corpus.modules import Corpus
from environments.inlining.environment import InliningEnvironment
from environments.inlining.linking.objective import make_objective, read_counted


def make_environment(
    corpus: str | os.PathLike[str] | None = None,
    *,
    compiler: str | Compiler = "embedded",
    reward: str = "object",
    **settings: Any,
) -> InliningEnvironment:
    """Make an environment that draws modules of a corpus, each with the same probability.

    Args:
      corpus: directory of the modules (`tfrl corpus build` makes one), which `reset_at` then knows
        by their names; or None, with the setting `sampler`.
      compiler: a compiler, or "embedded", or a clang: a path or a name on PATH.
      reward: what is to be smaller: "object", "image", "code", or a number between 0 (code) and 1
        (image), as `linking.objective` explains them. For all but "object" the whole corpus is
        compiled once.
      **settings: other arguments of `InliningEnvironment`.

    Raises:
      UserError: the corpus or the compiler cannot be used.
    """
    if (corpus is None) == ("sampler" not in settings):
        raise UserError(
            "corpus: expected a directory, or a sampler; give one, as in corpus='runs/mine'"
        )
    counted = read_counted(reward)
    if corpus is None and reward != "object":
        raise UserError(f"reward: expected a corpus to count copies in, found {reward!r} without")
    if isinstance(compiler, str):
        compiler = make_compiler(compiler)
    if corpus is not None:
        loaded = Corpus.load(os.fspath(corpus))
        settings["sampler"] = Named({module.name: module for module in loaded.modules})
        if reward != "object":
            sizes = [compiler.compile_plain(module).size for module in loaded.modules]
            pairs = list(zip(loaded.modules, sizes, strict=True))
            settings["objective"] = make_objective(counted, pairs, loaded.num_sources)
            settings["default_sizes"] = {module.name: size for module, size in pairs}
    return InliningEnvironment(compiler=compiler, **settings)
