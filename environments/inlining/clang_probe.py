"""What a clang can do, found out by trying: versions differ, and so do their faults."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import tempfile

from environments.errors import UserError
from environments.inlining.channel import Channel

MINIMUM_VERSION = 17

# The callee has three basic blocks; LLVM 19 overwrites that count with its default decision.
_PROBE_BLOCKS = 3
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
define void @caller(i32 %x) minsize optsize {
  call void @callee(i32 %x)
  ret void
}
define void @caller_too(i32 %x) minsize optsize {
  call void @callee(i32 %x)
  ret void
}
"""


@dataclasses.dataclass(frozen=True)
class ClangFacts:
    """What was found of one clang.

    Attributes:
      version: the full version, for instance "19.1.7".
      banner: what tells two builds of one version apart: vendor, version and target.
      announces_default: its channel can include LLVM's own decision, rightly.
      announced: names of the features of its channel, in order.
    """

    version: str
    banner: str
    announces_default: bool
    announced: tuple[str, ...]


def probe_clang(executable: str) -> ClangFacts:
    """Asks `executable` for its version and tries its interactive channel.

    Raises:
      UserError: it is not clang, older than LLVM 17, or its channel does not work.
    """
    version, banner = _version(executable)
    if int(version.split(".")[0]) < MINIMUM_VERSION:
        raise UserError(
            f"compiler: expected clang {MINIMUM_VERSION} or newer (the first whose inliner can be "
            f"steered), found {executable} of version {version}; install a newer one, or use "
            "--compiler embedded"
        )
    announced, blocks = _probe(executable, [])
    if blocks != _PROBE_BLOCKS:
        raise UserError(
            f"compiler: expected {executable} (version {version}) to ask for inlining advice, "
            "found that it does not; use another build of clang, or --compiler embedded"
        )
    including, blocks = _probe(executable, ["-inliner-interactive-include-default"])
    if blocks == _PROBE_BLOCKS:
        return ClangFacts(version, banner, True, including)
    return ClangFacts(version, banner, False, announced)


def _version(executable: str) -> tuple[str, str]:
    """The version, and the banner (see `ClangFacts`)."""
    try:
        shown = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"compiler: expected clang, found that {executable} does not run ({error}); "
            "name another with --compiler"
        ) from error
    match = re.search(r"clang version (\d+(?:\.\d+)*)", shown)
    if match is None:
        line = (shown.splitlines() or ["nothing"])[0]
        raise UserError(
            f"compiler: expected clang {MINIMUM_VERSION} or newer, found {executable} that says "
            f"{line!r}; name a clang with --compiler, or use --compiler embedded"
        )
    target = re.search(r"^Target: \S+", shown, re.MULTILINE)
    banner = [shown.splitlines()[0], target[0] if target else ""]
    return match[1], " ".join(banner).strip()


def _probe(executable: str, options: list[str]) -> tuple[tuple[str, ...], int | None]:
    """The features announced, and the basic blocks that the channel reports for the callee."""
    channel = Channel()
    with tempfile.TemporaryDirectory(prefix="tfrl-probe-") as directory:
        source = pathlib.Path(directory) / "probe.ll"
        source.write_text(PROBE_IR)
        llvm_options = [
            "-enable-ml-inliner=release",
            f"-inliner-interactive-channel-base={channel.base}",
            *options,
        ]
        command = [executable, "-Oz", "-c", "-x", "ir", str(source), "-o", f"{directory}/probe.o"]
        command += [word for option in llvm_options for word in ("-mllvm", option)]
        # The probe has two call sites; both answers may wait in the pipe.
        channel.answer_ahead(b"\0" * 16)
        try:
            subprocess.run(command, capture_output=True, timeout=60, check=False)
            channel.pump()
            observation = channel.parser.next_observation()
        except subprocess.TimeoutExpired:
            return (), None
        finally:
            channel.close()
    if observation is None:
        return (), None
    return observation.dtype.names or (), int(observation["callee_basic_block_count"])
