"""ONNX files as people have them: `tfrl optimize` beside other optimisers."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from environments import files
from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution import equivalence, measuring
from environments.tensor_graphs.execution.backends import Arrays
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import OpenSizes
from tfrl_systems import experiments
from tfrl_systems.settings import option
from tools.studies.study import Cell, Record, Records, Study, Table, Trial, first

PEERS = {
    "onnxsim": "import onnx, onnxsim; onnx.save(onnxsim.simplify(onnx.load(S))[0], T)",
    "onnxslim": "import onnx, onnxslim; onnx.save(onnxslim.slim(onnx.load(S)), T)",
    "onnxoptimizer": (
        "import onnx, onnxoptimizer; onnx.save(onnxoptimizer.optimize(onnx.load(S)), T)"
    ),
    "onnxscript": (
        "import onnx, onnxscript.optimizer as o; onnx.save(o.optimize(onnx.load(S)), T)"
    ),
    "ort_fusions": (
        "from onnxscript import ir; from onnxscript.rewriter.ort_fusions import optimize_for_ort; "
        "ir.save(optimize_for_ort(ir.load(S))[0], T)"
    ),
    "onnxruntime.transformers": (
        "from onnxruntime.transformers import optimizer; "
        # Its higher levels need PyTorch.
        "optimizer.optimize_model(S, opt_level=0).save_model_to_file(T)"
    ),
}
"""What makes the file T from the file S, in Python, by the name of the tool."""

OURS: Mapping[str, Mapping[str, Any]] = {"tfrl": {}, "tfrl --contrib": {"contrib": True}}
COPY = "two copies"
RUNTIME = "openvino"
"""Another runtime that the file itself runs in, where it is installed beside this program."""
_LEVELS = ("", "-extended", "-basic", "-disable")
_PEER_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Which files are optimised, and how long.

    Attributes:
      models: directory of ONNX files, as `tools.fetch_models` makes it.
      seconds: for each search.
      measure_seconds: for each measurement here; `tfrl optimize` measures as long as it does.
      threads: of each operator, wherever something is measured.
      peers: the Python in which the others are installed (pip install 'tfrl-systems[peers]'); an
        environment of their own, if they need other versions of onnx or ml_dtypes.
    """

    models: pathlib.Path = option(metavar="DIR")
    seconds: float = option(30.0, metavar="N", positive=True)
    measure_seconds: float = option(5.0, metavar="N", positive=True)
    threads: int = option(1, metavar="N", minimum=1)
    peers: str = option(sys.executable, metavar="PYTHON")


def _trials(options: Files) -> Iterator[Trial]:
    paths = sorted(options.models.glob("*.onnx"))
    if not paths:
        raise UserError(
            f"--models {options.models}: expected a directory with ONNX files, found none; fetch "
            "some with python -m tools.fetch_models"
        )
    settings = {**dataclasses.asdict(options), "models": str(options.models)}
    for path in paths:
        about = {"file": path.stem, "path": str(path), "sha256": files.sha256(path)}
        yield Trial(path.stem, {**settings, **about})


def simplified(peer: str, python: str, source: pathlib.Path, target: pathlib.Path) -> str:
    """Let another tool simplify a file; return why there is no result, "" if there is one.

    It runs in a process of its own, of the Python that has the tool, since such tools may crash.
    """
    code = f"S, T = {str(source)!r}, {str(target)!r}; {PEERS[peer]}"
    try:
        done = subprocess.run(
            [python, "-c", code],
            capture_output=True, text=True, timeout=_PEER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "too slow"
    except OSError:
        return "not installed"
    if done.returncode == 0 and target.exists():
        return ""
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return "not installed" if f"No module named '{peer}'" in last else f"failed: {last[:80]}"


def measured(
    original: pathlib.Path,
    others: Mapping[str, pathlib.Path],
    inputs: Arrays,
    seconds: float,
    threads: int = 1,
) -> Record:
    """Measure fully optimised models, each in turns with two copies of the original at its best.

    Returns:
      For each name, for a copy of the original, and for the original in RUNTIME, [median, low,
      high] of its time over that of the original at its best level; "level", the name of that
      level; "wrong", what differs or why it does not run, by name.
    """
    full, *lower = (remote.isolated(f"onnxruntime{suffix}", threads) for suffix in _LEVELS)
    bench = measuring.Bench(original, inputs, full)
    beside = {level: bench.compare(original, other_backend=level, seconds=0.5) for level in lower}
    level, quickest = min(beside.items(), key=lambda item: item[1].ratio.value)
    best = level if quickest.ratio.value < 1 else full
    bench, own = measuring.Bench(original, inputs, best), Reference(best.open(original))
    coarsest = equivalence.least_exact_type(onnx_io.read(original))
    ratios, wrong = dict[str, measuring.Ratio](), dict[str, str]()
    runs = [(name, path, full.name) for name, path in others.items()]
    runs.append((RUNTIME, original, full.name.replace("onnxruntime", RUNTIME)))
    for name, path, on in runs:
        try:
            runtime = remote.isolated(on)
            same = equivalence.check(own, path, [inputs], on=runtime, computed_in=coarsest)
            # In fresh processes: what ran before in one changes how fast the next runs.
            compared = bench.compare(
                path, other_backend=runtime, seconds=seconds / len(others), num_processes=2
            )
        except UserError as error:
            wrong[name] = str(error)
            continue
        if not same.is_equal:
            wrong[name] = str(same.worst)
        ratios |= {name: compared.ratio, COPY: compared.same}
    return {
        "ratios": {name: list(dataclasses.astuple(ratio)) for name, ratio in ratios.items()},
        "level": best.name,
        "wrong": wrong,
    }


def _measure(about: Record, _: pathlib.Path) -> Record:
    path, measure_s = pathlib.Path(about["path"]), about["measure_seconds"]
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        directory = pathlib.Path(name)
        others = {name: directory / f"{name}.onnx" for name in OURS}
        try:
            outcomes = [
                experiments.optimize(
                    path,
                    others[name],
                    reporter=experiments.Reporter(),
                    seconds=about["seconds"],
                    threads=about["threads"],
                    **settings,
                )
                for name, settings in OURS.items()
            ]
        except UserError as error:
            return {"outcome": f"refused: {error}", "rows": [], "peers": {}, "seconds_all": 0.0}
        peers = {
            peer: simplified(peer, about["peers"], path, directory / f"{peer}.onnx")
            for peer in PEERS
        }
        outcome = outcomes[0]
        others |= {peer: directory / f"{peer}.onnx" for peer, why in peers.items() if not why}
        peers[RUNTIME] = "" if importlib.util.find_spec(RUNTIME) else "not installed"
        open_sizes = OpenSizes(onnx_io.read(path))
        rows = []
        for sizes in outcome["sizes"]:
            model = onnx.load(path, load_external_data=False)
            inputs = random_inputs(model, sizes=open_sizes.at(sizes))
            rows.append(
                {"sizes": sizes, **measured(path, others, inputs, measure_s, about["threads"])}
            )
    return {
        "outcome": "faster" if outcome["gain"] else f"copied: {outcome['reason']}",
        "rows": rows,
        "why_not": peers,
        "said": outcome["measured_ratio"],
        "search_s": outcome["search_seconds"],
        "seconds_all": outcome["seconds"],
    }


def by_sizes(records: Records) -> Iterator[Record]:
    """Yield a record for each file and sizes; what is said of the file, at the first of them."""
    for record in records:
        for number, row in enumerate(record["rows"] or [{"sizes": {}, "ratios": {}}]):
            sizes = ", ".join(f"{name}={size}" for name, size in row["sizes"].items())
            said = None if number else record.get("said")
            yield {**record, **row, "at": sizes or "fixed", "said": said}


def _ratio_of(name: str) -> Cell:
    def cell(records: Records) -> str:
        (record,) = records
        if why := record.get("why_not", {}).get(name):
            return why
        if name not in record["ratios"]:
            return "does not run" if record["ratios"] else ""
        ratio, low, high = record["ratios"][name]
        return f"{ratio:.3f} [{low:.3f}, {high:.3f}]" + " (wrong)" * (name in record["wrong"])

    return cell


FILES = Study(
    """ONNX files as people have them: `tfrl optimize` beside other optimisers.

    python -m tools.fetch_models -o runs/models
    python -m tools.studies files --models runs/models -o runs/files

Optimises each file, lets the others simplify it too, and measures each of them in turns with the
file and a copy of it, in fresh processes, at each of the sizes that `tfrl optimize` reports.""",
    Files,
    _trials,
    _measure,
    [
        Table(
            "Times over the file's own at the level of onnxruntime's optimisation that suits it "
            'best; "said" is what `tfrl optimize` said itself, beside the file fully optimised.',
            ("file", "at"),
            {
                **{name: _ratio_of(name) for name in OURS},
                "said": first("said", "{:.3f}"),
                COPY: _ratio_of(COPY),
                **{peer: _ratio_of(peer) for peer in (*PEERS, RUNTIME)},
                "search, all": first(
                    lambda row: f"{row.get('search_s', 0):.0f} s, {row['seconds_all']:.0f} s"
                ),
                "outcome": first("outcome"),
            },
            derive=by_sizes,
            label="file, sizes",
        )
    ],
)
