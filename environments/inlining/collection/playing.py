"""Compile a module under a policy: inside clang if it can be put there, else by the channel.

Both roads give the same decisions, features and bytes. A clang with the policy inside takes about
as long as a plain one; the channel waits for an answer at each call site.
"""

from __future__ import annotations

from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.collection.variation import POLICY_ALONE, SiteNames, Variation
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, row_by_row
from environments.inlining.plugin.compiler import PluginClang


def compile_under(
    policy: Policy, compiler: Compiler, module: Module, variation: Variation = POLICY_ALONE
) -> CompiledModule:
    """Compile a module under a policy, except where `variation` says otherwise.

    Raises:
      CompilerError: the compiler failed, died or hung.
      UserError: the compiler does not offer a feature that the policy needs.
    """
    if isinstance(compiler, PluginClang):
        names = feature_names(compiler.announced)
        # A policy refuses features that it cannot decide by, wherever it would decide.
        policy.begin(module.name, names)
        varied = None if variation == POLICY_ALONE else variation.to_json()
        if (compiled := compiler.compile_inside(policy, module, names, varied)) is not None:
            return compiled
    return compile_by_channel(policy, compiler, module, variation)


def compile_by_channel(
    policy: Policy, compiler: Compiler, module: Module, variation: Variation = POLICY_ALONE
) -> CompiledModule:
    """Compile a module as `compile_under` does, deciding in this process."""
    decide = row_by_row(policy.begin(module.name, feature_names(compiler.announced)))
    site_names = SiteNames()
    step = 0
    with CompileEpisode(compiler, module) as episode:
        while (row := episode.next_row()) is not None:
            assert episode.site is not None
            key = site_names.name(episode.site.caller, episode.site.callee)
            decision, default = decide(row, step), int(episode.site.default)
            episode.decide(variation.action(decision, default, key, step))
            step += 1
        return episode.result()
