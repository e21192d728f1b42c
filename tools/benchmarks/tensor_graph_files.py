"""ONNX files as people have them: `tfrl optimize` beside onnxsim and OnnxSlim.

    python -m tools.fetch_models -o runs/models
    python -m tools.benchmarks.tensor_graph_files --models runs/models --output runs/files

optimises each file of a directory, lets the others simplify it too, and measures all of them in
turns, each in a fresh process, at each of the sizes that `tfrl optimize` reports. A time is divided
by that of the original at the level of onnxruntime's optimisation that suits the original best.
"said" is what `tfrl optimize` said itself, beside the original fully optimised. With --spinning N,
so many processes take the processor away while it works; "all" shows how long it takes then, and
how long it may take.

--output gets
  table.md   the table, with the command that made it
  records/   one file for each model
If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import Arrays, Backend, Program, backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.measuring import ratio_of
from environments.tensor_graphs.execution.sizes import OpenSizes
from tfrl_systems import experiments
from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.reporting import Terminal
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.shared import Record

PEERS = {
    "onnxsim": "import onnx, onnxsim; onnx.save(onnxsim.simplify(onnx.load(S))[0], T)",
    "onnxslim": "import onnx, onnxslim; onnx.save(onnxslim.slim(onnx.load(S)), T)",
}
_LEVELS = ("", "-extended", "-basic", "-disable")
_PEER_TIMEOUT_S = 300.0
_BLOCK_S = 0.005


def simplified(peer: str, python: str, source: pathlib.Path, target: pathlib.Path) -> str:
    """Let another tool simplify a file; return why there is no result, "" if there is one.

    It runs in a process of its own, since such tools may crash.

    Args:
      peer: one of `PEERS`.
      python: the Python that has it.
      source: the file.
      target: file for the result.
    """
    code = f"S, T = {str(source)!r}, {str(target)!r}; {PEERS[peer]}"
    try:
        ran = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            text=True,
            timeout=_PEER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "too slow"
    except OSError:
        return "not installed"
    if ran.returncode == 0 and target.exists():
        return ""
    last = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
    return "not installed" if f"No module named '{peer}'" in last else f"failed: {last[:80]}"


def measured(
    original: pathlib.Path, others: Mapping[str, pathlib.Path], inputs: Arrays, seconds: float
) -> Record:
    """Measure models in turns: the original twice at each level, the others fully optimised.

    Args:
      original: the file that the others were made from.
      others: their files by name.
      inputs: what all are run on.
      seconds: wall time.

    Returns:
      For each name, and for "same", a copy of the original, [median, low, high] of its time over
      that of the original at its best level; "level", the name of that level; "wrong", what differs
      or why it does not run, by name.
    """
    full = backend("onnxruntime")
    levels = [backend(f"onnxruntime{suffix}") for suffix in _LEVELS]
    best = min(levels, key=lambda one: _median_s(one.open(original), inputs))
    found, programs, wrong = {}, {}, dict[str, str]()
    coarsest = equivalence.least_exact_type(onnx_io.read(original))
    with contextlib.ExitStack() as stack:

        def fresh(on: Backend, path: pathlib.Path) -> Program:
            isolated = remote.isolated(on.name)
            return stack.enter_context(remote.alone(isolated)).open(path)

        first = fresh(best, original)
        for name, path in others.items():
            try:
                same = equivalence.check(first, path, [inputs], on=full, computed_in=coarsest)
                programs[name] = fresh(full, path)
            except UserError as error:
                wrong[name] = str(error)
                continue
            if not same.is_equal:
                wrong[name] = str(same.worst)
        programs |= {"": first, "same": fresh(best, original)}
        times = _in_turns(list(programs.values()), inputs, seconds)
    by_name = dict(zip(programs, times, strict=True))
    for name in programs:
        if name:
            ratio = ratio_of(by_name[""], by_name[name])
            found[name] = [ratio.value, ratio.low, ratio.high]
    return {"ratios": found, "level": best.name, "wrong": wrong}


@contextlib.contextmanager
def spinning(num_processes: int) -> Iterator[None]:
    """Have processes keep the processor busy."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _median_s(program: Program, inputs: Arrays) -> float:
    (times,) = _in_turns([program], inputs, 0.3)
    return sorted(times)[len(times) // 2]


def _in_turns(programs: Sequence[Program], inputs: Arrays, seconds: float) -> list[list[float]]:
    """Run programs in turns, each time beginning with another one; return their times."""
    timers = [program.timer(inputs) for program in programs]
    num_runs = 1
    for timer in timers:
        timer(1)
        num_runs = max(num_runs, round(_BLOCK_S / max(timer(1), 1e-6)))
    times: list[list[float]] = [[] for _ in programs]
    end_s, turn = time.monotonic() + seconds, 0
    while turn < 9 or time.monotonic() < end_s:
        for place in range(len(programs)):
            number = (place + turn) % len(programs)
            times[number].append(timers[number](num_runs) / num_runs)
        turn += 1
    return times


def compared(
    path: pathlib.Path, seconds: float, measure_s: float, python: str, num_spinning: int
) -> Record:
    """Return the record of one file: what was made of it, and how fast that is."""
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        directory = pathlib.Path(name)
        ours = directory / "tfrl.onnx"
        try:
            with spinning(num_spinning):
                found = experiments.optimize(
                    path, ours, reporter=experiments.Reporter(), seconds=seconds,
                    measure_seconds=measure_s,
                )  # fmt: skip
        except UserError as error:
            return {"outcome": f"refused: {error}", "rows": [], "peers": {}, "seconds": 0.0}
        peers = {peer: simplified(peer, python, path, directory / f"{peer}.onnx") for peer in PEERS}
        others = {"tfrl": ours} | {
            peer: directory / f"{peer}.onnx" for peer, why in peers.items() if not why
        }
        opened = OpenSizes(onnx_io.read(path))
        rows = []
        for sizes in found["sizes"]:
            inputs = random_inputs(
                onnx.load(path, load_external_data=False), sizes=opened.at(sizes)
            )
            rows.append({"sizes": sizes, **measured(path, others, inputs, measure_s)})
    return {
        "outcome": "faster" if found["gain"] else f"copied: {found['reason']}",
        "rows": rows,
        "peers": peers,
        "seconds": found["seconds"],
        "said": found["measured_ratio"],
        "search_seconds": found["search_seconds"],
    }


def table(records: Mapping[str, Record]) -> str:
    """Return the records as a table in Markdown, a line for each file and sizes."""
    header = ["file", "MB", "sizes", "tfrl", "said", "A/A", *PEERS, "search, all", "outcome"]
    lines = []
    for name, record in records.items():
        took = f"{record.get('search_seconds', 0):.0f} s, {record['seconds']:.0f} s"
        if record["settings"].get("spinning"):
            most_s = record["settings"]["seconds"] + 2 * record["settings"]["measure_seconds"] + 30
            took += f" of {most_s} s"
        megabytes = f"{record['settings']['size_bytes'] / 1e6:.1f}"
        end = [took, record["outcome"].replace("|", "/")]
        for place, row in enumerate(record["rows"]):
            said = record.get("said")
            told = f"{said:.3f}" if said is not None and not place else ""
            ratios = row["ratios"]
            sizes = ", ".join(f"{key}={value}" for key, value in row["sizes"].items()) or "fixed"
            same = f"[{ratios['same'][1]:.3f}, {ratios['same'][2]:.3f}]"
            cells = [_cell(row, record["peers"], one) for one in ("tfrl", *PEERS)]
            lines.append([name, megabytes, sizes, cells[0], told, same, *cells[1:], *end])
        if not record["rows"]:
            lines.append([name, megabytes, *[""] * (len(header) - 4), *end])
    return shared.markdown_table(header, lines)


def _cell(row: Mapping[str, Any], peers: Mapping[str, str], name: str) -> str:
    if peers.get(name):
        return peers[name].replace("|", "/")
    if name not in row["ratios"]:
        return "does not run"
    value, low, high = row["ratios"][name]
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" + (" wrong" if name in row["wrong"] else "")


def run(options: argparse.Namespace) -> None:
    """Measure each file that has no record yet; write the table after each."""
    paths = sorted(options.models.glob("*.onnx"))
    if not paths:
        raise UserError(
            f"--models {options.models}: expected a directory with ONNX files, found none; fetch "
            "some with python -m tools.fetch_models"
        )
    settings = {
        "seconds": options.seconds,
        "measure_seconds": options.measure_seconds,
        "spinning": options.spinning,
    }
    records: dict[str, Record] = {}
    with Terminal() as terminal:
        for path in paths:
            terminal.say(path.name)
            records[path.stem] = shared.kept(
                options.output / "records" / f"{path.stem}.json",
                {**settings, "size_bytes": path.stat().st_size},
                lambda path=path: {  # type: ignore[misc]
                    **compared(
                        path,
                        options.seconds,
                        options.measure_seconds,
                        options.peers,
                        options.spinning,
                    ),
                    "commit": shared.commit(),
                },
            )
            commits = ", ".join(sorted({one["commit"] for one in records.values()}))
            text = f"`{options.command_line}`\n\nMeasured at {commits}.\n\n{table(records)}\n"
            (options.output / "table.md").write_text(text, encoding="utf-8")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument(
        "--seconds", type=whole_number(1), default=30, metavar="N", help="for each search"
    )
    parser.add_argument(
        "--measure-seconds", type=whole_number(1), default=5, metavar="N",
        help="for each measurement",
    )  # fmt: skip
    parser.add_argument(
        "--spinning", type=whole_number(0), default=0, metavar="N",
        help="processes that keep the processor busy while tfrl optimize works (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--peers",
        default=sys.executable,
        metavar="PYTHON",
        help="the Python in which onnxsim and onnxslim are installed; an environment of their own, "
        "if they need other versions of onnx or ml_dtypes (default: this one)",
    )
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.tensor_graph_files", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
