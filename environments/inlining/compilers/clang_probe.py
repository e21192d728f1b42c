"""Find out by trying what a clang can do: versions differ, and so do their faults."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import subprocess
import tempfile

from environments.errors import UserError
from environments.inlining.compilers.channel import Channel, StreamParser
from environments.inlining.compilers.compilation import (
    ADVISE_OPTIONS,
    DEFAULT_FEATURE,
    INCLUDE_DEFAULT_OPTION,
)
from environments.inlining.corpus.bitcode_compilers import ask_version

MINIMUM_VERSION = 17

# Each call site calls a function with three basic blocks: LLVM 19 overwrites that count with its
# own decision, which is to inline the last call site alone, the only one of a local function.
_BLOCKS = "callee_basic_block_count"
_PROBE_BLOCKS = (3, 3, 3)
_PROBE_DEFAULTS = (0, 0, 1)
PROBE_IR = """\
target triple = "x86_64-unknown-linux-gnu"
declare void @sink(i32)
define void @callee(i32 %x) minsize optsize {
  %positive = icmp sgt i32 %x, 0
  br i1 %positive, label %then, label %end
then:
  call void @sink(i32 1)
  call void @sink(i32 2)
  call void @sink(i32 3)
  br label %end
end:
  call void @sink(i32 %x)
  ret void
}
define internal void @once(i32 %x) minsize optsize {
  %positive = icmp sgt i32 %x, 0
  br i1 %positive, label %then, label %end
then:
  call void @sink(i32 1)
  call void @sink(i32 2)
  br label %end
end:
  call void @sink(i32 %x)
  ret void
}
define void @caller(i32 %x) minsize optsize {
  call void @callee(i32 %x)
  ret void
}
define void @caller_too(i32 %x) minsize optsize {
  call void @callee(i32 %x)
  call void @once(i32 %x)
  ret void
}
"""


@dataclasses.dataclass(frozen=True)
class ClangFacts:
    """What was found out about a clang.

    Attributes:
      version: the full version, for instance "19.1.7".
      banner: vendor, version and target, which distinguish two builds of one version.
      default_feature: name of the feature in which the channel can send LLVM's own decision. In
        LLVM 19 this is another feature, whose value the decision overwrites. "" if the channel
        cannot send the decision.
      announced: names of the features that the channel announces, in order.
    """

    version: str
    banner: str
    default_feature: str
    announced: tuple[str, ...]

    @property
    def announces_default(self) -> bool:
        """Whether the channel can send LLVM's own decision."""
        return bool(self.default_feature)

    @property
    def hides_callee_blocks(self) -> bool:
        """Whether the channel overwrites a feature with LLVM's decision: unknown in training."""
        return self.default_feature == _BLOCKS

    @property
    def major(self) -> int:
        """The major version of LLVM."""
        return int(self.version.split(".")[0])


def probe_clang(executable: str) -> ClangFacts:
    """Ask an executable for its version and try its interactive channel, unless it was asked.

    Raises:
      UserError: the executable is not clang, is older than LLVM 17, or has a channel that does not
        work.
    """
    try:
        changed_ns = pathlib.Path(executable).stat().st_mtime_ns
    except OSError:
        changed_ns = 0
    return _probe_at(executable, changed_ns)


@functools.cache
def _probe_at(executable: str, _: int) -> ClangFacts:
    """Probe an executable as it was at a time: its objects are kept under what is found here."""
    version, banner = _version(executable)
    if int(version.split(".")[0]) < MINIMUM_VERSION:
        raise UserError(
            f"compiler: expected clang {MINIMUM_VERSION} or newer (the first whose inliner can be "
            f"steered), found {executable} of version {version}; install a newer one, or use "
            "--compiler embedded"
        )
    plain = _probe(executable, [])
    if plain.get(_BLOCKS) != _PROBE_BLOCKS:
        raise UserError(
            f"compiler: expected {executable} (version {version}) to ask for inlining advice, "
            "found that it does not; use another build of clang, or --compiler embedded"
        )
    including = _probe(executable, [INCLUDE_DEFAULT_OPTION])
    if including.get(DEFAULT_FEATURE) == _PROBE_DEFAULTS:
        return ClangFacts(version, banner, DEFAULT_FEATURE, tuple(including))
    if including.get(_BLOCKS) == _PROBE_DEFAULTS:
        return ClangFacts(version, banner, _BLOCKS, tuple(including))
    return ClangFacts(version, banner, "", tuple(plain))


def _version(executable: str) -> tuple[str, str]:
    """Return the version and the banner (see `ClangFacts`)."""
    lines = ask_version((executable,))
    match = re.search(r"clang version (\d{1,6}(?:\.\d{1,6})*)", "\n".join(lines))
    if match is None:
        raise UserError(
            f"compiler: expected clang {MINIMUM_VERSION} or newer, found {executable} that says "
            f"{lines[0]!r}; name a clang with --compiler, or use --compiler embedded"
        )
    target = re.search(r"^Target: \S+", "\n".join(lines), re.MULTILINE)
    return match[1], f"{lines[0]} {target[0] if target else ''}".strip()


def _probe(executable: str, options: list[str]) -> dict[str, tuple[int, ...]]:
    """Compile the probe; return each feature's values at its call sites, by name of the feature.

    The result is empty if the channel sends nothing.
    """
    channel = Channel()
    with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as directory:
        source = pathlib.Path(directory) / "probe.ll"
        source.write_text(PROBE_IR)
        llvm_options = [option.format(base=channel.base) for option in ADVISE_OPTIONS]
        command = [executable, "-Oz", "-c", "-x", "ir", str(source), "-o", f"{directory}/probe.o"]
        command += [word for option in llvm_options + options for word in ("-mllvm", option)]
        # The pipe has room for all answers, so they can be written before clang starts.
        channel.answer_ahead(bytes(8 * len(_PROBE_DEFAULTS)))
        try:
            subprocess.run(command, capture_output=True, timeout=60, check=False)
            channel.pump()
            return _by_feature(channel.parser)
        except subprocess.TimeoutExpired:
            return {}
        finally:
            channel.close()


def _by_feature(parser: StreamParser) -> dict[str, tuple[int, ...]]:
    rows = []
    while (observation := parser.next_observation()) is not None:
        assert parser.header is not None
        rows.append(parser.header.unpack(observation))
    if parser.header is None:
        return {}
    return dict(zip(parser.header.names, zip(*rows, strict=True), strict=bool(rows)))
