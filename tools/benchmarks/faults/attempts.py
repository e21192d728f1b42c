"""One start of a command, and the faults that strike it until it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping

import numpy as np

from tools.benchmarks.faults import processes, striking
from tools.benchmarks.faults.runs import GRACE_S, Quiet, Run

_POLL_S = 0.02
_SIGNALS = {
    **{"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM},
    **{"truncate_file": signal.SIGKILL, "flip_bit": signal.SIGKILL},
}
_NO_SPACE = re.compile(r"No space left|free some space")


class Attempt:
    """One start of the command, and the faults that strike it.

    Args:
      run: the trial's commands.
      quiet: how it ends when nothing is broken.
      fault: kind of the fault that strikes the command itself; "" for none.
      random: decides when, and what else.
    """

    def __init__(self, run: Run, quiet: Quiet, fault: str, random: np.random.Generator) -> None:
        self._run, self._fault, self._random = run, fault, random
        self._place, self._struck = run.place, run.record.struck
        # A busy machine starts workers more slowly; they are struck at work, not at starts only.
        self._gap_s = run.scenario.gaps * quiet.seconds
        self._limit_s = 120 + 20 * quiet.seconds
        self._head_at_s = float(random.uniform(0, quiet.seconds))
        self._open: list[tuple[str, striking.CheckFn, processes.Target]] = []
        self._is_full = False

    def run(self) -> int:
        """Run the command until it ends; return its exit status."""
        head, began_s = self._run.start(), time.monotonic()
        next_s = began_s + float(self._random.uniform(0, 0.5))
        is_due = bool(self._fault)
        try:
            while head.poll() is None:
                now_s = time.monotonic()
                if now_s - began_s > self._limit_s:
                    self._run.record.failures.append(f"it hung for {self._limit_s:.0f} s")
                    break
                if is_due and now_s - began_s > self._head_at_s:
                    is_due = not self._strike_head(head)
                if now_s > next_s and self._strike(self._run.scenario.targets):
                    next_s = now_s + float(self._random.exponential(self._gap_s))
                self._look_at_open()
                time.sleep(_POLL_S)
        finally:
            self._finish(head)
        return head.wait()

    def _strike_head(self, head: subprocess.Popen) -> bool:
        """Strike the command, or what it cannot do without; return whether that was there."""
        kind = self._fault
        if kind in _SIGNALS:
            if head.poll() is None:
                self._signal_head(head, _SIGNALS[kind])
        elif kind == "pause":
            target = processes.Target(head.pid, self._run.mark)
            check = striking.strike_worker("stop_worker", target, self._random)
            self._open.append((kind, check, target))
        elif kind == "vanish_node":
            return self._strike({"ray node": (kind,)})
        elif kind == "disk_full":
            self._is_full = True
        else:
            assert self._run.clock is not None
            self._run.clock.jump(int(self._random.choice(striking.JUMPS_S)))
        return True

    def _signal_head(self, head: subprocess.Popen, number: signal.Signals) -> None:
        """Signal the command; a build as a whole, as a terminal does."""
        if self._run.scenario.signals_group:
            os.killpg(head.pid, number)
        else:
            head.send_signal(number)
        if number == signal.SIGKILL and head.wait() != -signal.SIGKILL:
            return  # It had just ended by itself.
        if self._fault in ("truncate_file", "flip_bit"):
            processes.wait_until_gone(self._run.mark, GRACE_S)
            if not striking.damage(self._fault, self._place, self._random):
                return
            self._run.was_damaged = True
        self._struck[self._fault] += 1

    def _strike(self, targets: Mapping[str, tuple[str, ...]]) -> bool:
        """Strike one of the processes that the command started; return whether there was one."""
        target, role = striking.pick(self._run.mark, list(targets), self._random)
        if target is None:
            return False
        kind = str(self._random.choice(targets[role]))
        try:
            check = striking.strike_worker(kind, target, self._random)
        except (ProcessLookupError, PermissionError):
            target.close()
            return True
        self._open.append((f"{kind} ({role})", check, target))
        return True

    def _look_at_open(self) -> None:
        if self._is_full:
            striking.Disk(self._place.root).fill()
        still = []
        for kind, check, target in self._open:
            has_hit = check()
            if has_hit is None:
                still.append((kind, check, target))
                continue
            self._struck[kind] += has_hit
            target.close()
        self._open = still

    def _finish(self, head: subprocess.Popen) -> None:
        """End what is still open, and count what is known to have hit."""
        if head.poll() is None:
            head.kill()
        for kind, _, target in self._open:
            # Stops and pulses have hit at once; the end of others may not have come.
            is_certain = not kind.startswith(("out_of_memory", "hang_worker"))
            self._struck[kind] += is_certain or target.has_ended(0.5)
            with contextlib.suppress(ProcessLookupError):
                target.send(signal.SIGCONT)
            target.close()
        if self._fault == "disk_full" and self._is_full:
            striking.Disk(self._place.root).free()
            self._struck["disk_full"] += bool(_NO_SPACE.search(self._run.said()))
        if self._fault == "clock_jump" and self._run.clock is not None:
            self._struck["clock_jump"] += self._run.clock.num_readings() > 0
