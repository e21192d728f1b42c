"""Break real runs of tfrl on purpose, at random moments, and see that nothing is lost.

  python -m tools.benchmarks.fault_campaign --faults 1000 --seed 0
  python -m tools.benchmarks.fault_campaign --seed 0 --only 17 --scenario ppo

A campaign is a row of trials. A trial runs a command (`faults/scenarios.py`), strikes its
processes, files, disk and clock (`faults/striking.py`) until the command has come to its end,
started again where it has to be, and compares that end with a run in which nothing was broken.

The seed and the number of a trial decide what strikes when, so a trial can be run again alone. The
exit status is 1 if anything was lost, differs, or was left behind; the trial's files are then kept.
"gave up" counts commands that ended, with one line, because each of several attempts to start a
worker or to run a chunk was struck; they are started again like all others.

A hung worker stays stopped until --chunk-timeout has it replaced. A node vanishes only from a
cluster of this machine alone: the command then ends with one line, and goes on with --resume.
tests/tfrl_systems/drivers/ray_pool/test_clusters.py has clusters that lose one node of several.

Where this user may not mount a file system, no disk is full; where there is no C compiler, no clock
jumps. The clock jumps for what asks libc (Python, TensorFlow's C++), not for programs in Go.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from tfrl_systems.drivers.processes import adopt_orphans
from tools.benchmarks.faults import striking
from tools.benchmarks.faults.scenarios import SCENARIOS, WITH_RAY, Place, Scenario
from tools.benchmarks.faults.trials import Quiet, Record, run_quietly, run_trial
from tools.benchmarks.shared import commit, markdown_table, some_of
from tools.running import exit_status

_USUAL = tuple(name for name in SCENARIOS if "ray" not in name)


class Campaign:
    """Trials in a directory, one after another.

    Args:
      directory: where; its path has to be short, because Ray's sockets are below it.
      seed: decides all faults.
      scenarios: what is run, in turn.
    """

    def __init__(self, directory: pathlib.Path, seed: int, scenarios: Sequence[Scenario]) -> None:
        self.records: list[Record] = []
        self._directory, self._seed, self._scenarios = directory, seed, scenarios
        self._quiet: dict[str, Quiet] = {}
        self._library = striking.make_clock_library(directory)
        missing = set() if self._library else {"clock_jump"}
        if not striking.Disk.is_permitted(directory / "probe"):
            missing.add("disk_full")
        self.kinds = frozenset(WITH_RAY) - missing

    def run(self, number: int) -> Record:
        """Run a trial; its number says which scenario it is of, too."""
        scenario = self._scenarios[number % len(self._scenarios)]
        quiet = self._quiet_run(scenario)
        place = Place(self._directory / f"{scenario.name[:6]}{number}", self._inputs(scenario))
        record = run_trial(scenario, quiet, place, number, self._seed, self.kinds, self._library)
        shutil.rmtree(place.root, ignore_errors=True)
        self.records.append(record)
        return record

    def replay(self, record: Record) -> str:
        """Return the command that runs a trial again."""
        names = ",".join(one.name for one in self._scenarios)
        words = ["--seed", str(self._seed), "--only", str(record.number), "--scenario", names]
        return shlex.join(["python", "-m", "tools.benchmarks.fault_campaign", *words])

    def _inputs(self, scenario: Scenario) -> pathlib.Path:
        return self._directory / "inputs" / scenario.name

    def _quiet_run(self, scenario: Scenario) -> Quiet:
        if scenario.name not in self._quiet:
            inputs = self._inputs(scenario)
            inputs.mkdir(parents=True)
            scenario.prepare(inputs)
            place = Place(self._directory / f"{scenario.name[:6]}q", inputs)
            self._quiet[scenario.name] = quiet = run_quietly(scenario, place)
            shutil.rmtree(place.root, ignore_errors=True)
            _say(f"{scenario.name}: {quiet.seconds:.1f} s when nothing is broken")
        return self._quiet[scenario.name]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tables(records: Sequence[Record]) -> str:
    """Return what came of a campaign, by scenario and by kind of fault, in Markdown."""
    header = ["", "faults", "trials", "started again", "gave up", "lost", "differ", "left behind"]
    rows = []
    names = list(dict.fromkeys(one.scenario for one in records))
    for name in [*names, "all"]:
        some = [one for one in records if name in (one.scenario, "all")]
        numbers = (
            sum(sum(one.struck.values()) for one in some),
            len(some),
            sum(one.starts - 1 for one in some),
            sum(one.gave_up for one in some),
            sum(one.lost for one in some),
            sum(bool(one.failures) for one in some),
            sum(len(one.left) for one in some),
        )
        rows.append([name, *(f"{number:,}" for number in numbers)])
    struck: collections.Counter[str] = sum((one.struck for one in records), collections.Counter())
    kinds = markdown_table(["kind", "hit"], [[kind, str(n)] for kind, n in sorted(struck.items())])
    return f"{markdown_table(header, rows)}\n\n{kinds}"


def num_struck(records: Sequence[Record]) -> int:
    """Return how many faults hit."""
    return sum(sum(one.struck.values()) for one in records)


def _run(options: argparse.Namespace) -> None:
    adopt_orphans()
    # A shell has what it starts in the background ignore Ctrl-C; commands must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="fc-", dir="/tmp"))
    scenarios = [SCENARIOS[name] for name in options.scenario]
    campaign = Campaign(directory, options.seed, scenarios)
    until_s = time.monotonic() + 60 * options.minutes
    numbers = iter(range(10**9)) if options.only is None else iter([options.only])
    try:
        for number in numbers:
            record = campaign.run(number)
            total = num_struck(campaign.records)
            _tell(record, total)
            if not record.is_good:
                _say(f"  run it again: {campaign.replay(record)}\n  kept: {directory}")
            if total >= options.faults or time.monotonic() > until_s:
                break
    finally:
        _show(campaign, options)
    bad = sum(not one.is_good for one in campaign.records)
    if not bad:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(bool(bad))


def _tell(record: Record, total: int) -> None:
    wrong = "; ".join([*record.failures, *record.left])
    num_faults = sum(record.struck.values())
    _say(
        f"trial {record.number} ({record.scenario}): {num_faults} faults in "
        f"{record.seconds:.0f} s, {total} in all{'' if record.is_good else f'; WRONG: {wrong}'}"
    )


def _show(campaign: Campaign, options: argparse.Namespace) -> None:
    records = campaign.records
    if options.json:
        print(json.dumps({"commit": commit(), "trials": [one.to_json() for one in records]}))
        return
    slowest_s = max((one.gone_s for one in records), default=0.0)
    print(f"seed {options.seed}, commit {commit()}, {sum(one.seconds for one in records):.0f} s\n")
    print(tables(records))
    print(f"\nAll processes had ended at most {slowest_s:.1f} s after the command.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool, and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=1000, help="how many must hit")
    parser.add_argument("--minutes", type=float, default=600, help="at most")
    parser.add_argument("--seed", type=int, default=0, help="decides all faults")
    parser.add_argument("--only", type=int, metavar="N", help="run trial N alone")
    parser.add_argument(
        "--scenario", type=some_of(tuple(SCENARIOS)), default=_USUAL, metavar="A,B",
        help=f"some of {','.join(SCENARIOS)}; by default those without Ray",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return exit_status(_run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
