"""A compiler: a clang with policies inside, which decide in its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.inlining.compilers.compilation import DEFAULT_TIMEOUT_S, CompiledModule
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import Toolchain, find_toolchain
from environments.isolation import guardian

# Behind the features and the decision of a call site: the places of caller and callee.
_NUM_NAMES = 2


class PluginClang(SystemClang):
    """The user's clang, steered by a plugin where a policy can be compiled in, else by its channel.

    Args:
      toolchain: the clang, and what plugins for it are built with.
      timeout_s: see `ModuleReader`.
    """

    def __init__(self, toolchain: Toolchain, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(toolchain.clang, timeout_s)
        self._toolchain = toolchain
        self._plugins: dict[str, pathlib.Path | None] = {}

    def compile_inside(
        self,
        policy: Policy,
        module: Module,
        names: tuple[str, ...],
        variation: Mapping[str, Any] | None = None,
    ) -> CompiledModule | None:
        """Compile a module under a policy that is inside clang.

        Args:
          policy: decides the call sites.
          module: the module.
          names: names of the F features to return, in order.
          variation: where not to follow the policy, see plugin/recording.h; None for nowhere.

        Returns:
          None if the policy cannot be put inside, or clang does not tell of just one inliner: the
          channel then has to do.

        Raises:
          CompilerError: clang failed, died or hung.
        """
        plugin = self._plugin(policy)
        if plugin is None:
            return None
        with guardian.make_directory() as private:
            rows, varied = pathlib.Path(private) / "rows", pathlib.Path(private) / "variation"
            environment = {"TFRL_INLINING_ROWS": os.fspath(rows), "TFRL_INLINING_LOG": ""}
            environment["TFRL_INLINING_MARGIN"] = ""  # the policy's own
            if variation is not None:
                varied.write_text(json.dumps(variation), encoding="utf-8")
                environment["TFRL_INLINING_VARIATION"] = os.fspath(varied)
            compiled = self.compile_plain(module, [f"-fpass-plugin={plugin}"], environment)
            recording = rows.read_bytes() if rows.exists() else b""
        return _read(recording, names, compiled, variation is not None)

    def _plugin(self, policy: Policy) -> pathlib.Path | None:
        """Return the plugin that holds a policy; None if none can be built."""
        if policy.fingerprint not in self._plugins:
            plugin = None
            with contextlib.suppress(UserError):
                plugin = build_plugin(self._toolchain, source_of(policy))
            self._plugins[policy.fingerprint] = plugin
        return self._plugins[policy.fingerprint]


def _read(
    recording: bytes, names: tuple[str, ...], compiled: CompiledModule, is_varied: bool
) -> CompiledModule | None:
    """Add to a compile what its clang recorded; return None if that is of no use."""
    line, _, numbers = recording.partition(b"\n")
    try:
        header = json.loads(line)
        columns = {name: column for column, name in enumerate(header["features"])}
        shape = (header["sites"], len(columns) + 1 + _NUM_NAMES)
        table = np.frombuffer(numbers, np.int64).reshape(shape)
        features = table[:, [columns[name] for name in names]]
        # The last one is None, for places of -1: the channel would not name such a function.
        functions = (*header["functions"], None)
    except (KeyError, ValueError):
        return None
    if not header["steered"] or header["varied"] != is_varied:
        return None
    decisions = table[:, len(columns)].astype(np.int8)
    places = table[:, len(columns) + 1 :].tolist()
    called = tuple((functions[caller], functions[callee]) for caller, callee in places)
    return dataclasses.replace(compiled, decisions=decisions, features=features, names=called)


def make_clang(name: str) -> SystemClang:
    """Make a clang for many compiles: with policies inside, if plugins can be built for it.

    Raises:
      UserError: there is no such program, it is not clang, or it is too old.
    """
    if why_no_plugins(name):
        return SystemClang(name)
    return PluginClang(find_toolchain(name))


@functools.cache
def why_no_plugins(clang: str) -> str:
    """Return why policies cannot be put inside a clang, and the remedy; "" if they can."""
    try:
        find_toolchain(clang)
    except UserError as error:
        return str(error)
    return ""
