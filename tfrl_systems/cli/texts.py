"""Results as text for people, made from what `--json` prints."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrl_systems.experiments import Run
from tfrl_systems.reporting import describe_seconds, format_table, percent

Found = Mapping[str, Any]


def trained(system: str, run: Run, options: argparse.Namespace) -> str:
    """Format the result of a training run: where the policy is, and how to use it."""
    facts = [
        ("policy", str(run.policy)),
        ("curves", f"tensorboard --logdir {run.workdir}/tensorboard"),
        *_OUTCOMES.get(system, _outcome)(run.result),
        ("time", describe_seconds(run.result["seconds"])),
        ("next", _NEXT.get(system, _next)(system, run, options)),
    ]
    return "\n".join(f"{name:<13}{value}" for name, value in facts if value)


def evaluated(system: str, found: Found) -> str:
    """Format an evaluation as tables that compare the policies."""
    return _TABLES.get(system, _table)(found)


def benched(found: Found) -> str:
    """Format benchmarks as a table with one row for each."""
    rows = []
    for one in found["benchmarks"]:
        if "ratio" in one:
            times = [f"{one[key]:,.3f}" if key in one else "" for key in ("theirs_ms", "ours_ms")]
            rows.append([one["name"], f"{one['ratio']:,.3f} x", *times, str(one["against"])])
        else:
            rows.append([one["name"], f"{one['value']:,.3f} {one['unit']}", "", "", ""])
    return format_table(["benchmark", "", "theirs ms", "ours ms", "against"], rows)


def _outcome(result: Found) -> list[tuple[str, str]]:
    late = result["evaluation"].get("last_tenth", {})
    figures = ", ".join(f"{name} {value:.4g}" for name, value in late.items())
    return [("evaluation", f"{figures} (mean over the last tenth of the iterations)")]


def _errors(result: Found) -> list[tuple[str, str]]:
    late = result["evaluation"]["last_tenth"]
    return [
        (
            "errors",
            f"mse {late['mse']:.3g}, msle {late['msle']:.3g} "
            "(mean over the last tenth of the iterations)",
        )
    ]


def _costs(result: Found) -> list[tuple[str, str]]:
    late = result["evaluation"]["last_tenth"]
    return [
        (
            "costs",
            f"{percent(late['cost'], 1.0)} of estimated cost "
            "(mean of the models and of the last tenth of the iterations)",
        )
    ]


def _next(system: str, run: Run, options: argparse.Namespace) -> str:
    return f"tfrl evaluate {system} --policy {run.policy}"


def _evaluate_inlining(system: str, run: Run, options: argparse.Namespace) -> str:
    corpus = options.holdout or options.corpus
    return f"tfrl evaluate inlining --policy {run.policy} --policy default --corpus {corpus}"


def _evaluate_function(system: str, run: Run, options: argparse.Namespace) -> str:
    return f"{_next(system, run, options)} --policy scipy --policy random"


def _optimize(system: str, run: Run, options: argparse.Namespace) -> str:
    # A built-in model or a family is no file.
    files = [name for name in options.models if name.endswith(".onnx")]
    model = files[0] if files else "model.onnx"
    return f"tfrl optimize {model} -o fast.onnx --method policy --policy {run.policy}"


def _table(found: Found) -> str:
    names = [name for name in found["policies"][0] if name != "policy"]
    rows = [[one["policy"], *(f"{one[name]:.4g}" for name in names)] for one in found["policies"]]
    return format_table(["policy", *names], rows)


def _function_table(found: Found) -> str:
    names = [name for name in ("cost", "mse", "msle") if name in found["policies"][0]]
    rows = [
        [
            row["policy"],
            *(f"{row[name]:.3g}" for name in names),
            f"{row['evaluations']:,}",
            f"{row['microseconds_per_query']:.1f}",
        ]
        for row in found["policies"]
    ]
    table = format_table([found["function"], *names, "evaluations", "µs a query"], rows)
    return (
        f"{table}\n{found['function_evaluations']:,} evaluations of the function in all, "
        f"{found['truth_evaluations']:,} of them to find the least values"
    )


def _model_tables(found: Found) -> str:
    return "\n".join(map(_model_table, found["models"]))


def _model_table(found: Found) -> str:
    header = [found["model"], "estimate ms", "change", "steps", "expansions", "of best", "seconds"]
    before_ms = found["estimated_ms_before"]
    rows = [["(the model)", f"{before_ms:.4f}", "", "", "", "", ""]]
    rows += [
        [
            one["policy"],
            f"{one['estimated_ms_after']:.4f}",
            percent(one["estimated_ms_after"], before_ms),
            f"{one['steps']}",
            f"{one['expansions']:,}",
            f"{one['expansions_of_best']:,}",
            f"{one['seconds']:.1f}",
        ]
        for one in found["policies"]
    ]
    if bound := found["bound"]:
        name = "bound" if bound["is_proved"] else "best known"
        estimated_ms = bound["estimated_ms"]
        change = percent(estimated_ms, before_ms)
        rows.append([name, f"{estimated_ms:.4f}", change, "", "", "", f"{bound['seconds']:.1f}"])
    return format_table(header, rows)


def _size_tables(found: Found) -> str:
    header = ["", "modules", "bytes", "default", "change", "exec", "worse", "seconds"]
    rows, parts = [], []
    for one in found["policies"]:
        rows.append([*_size_cells(one["policy"], one), f"{one['seconds']:.1f}"])
        if "never_worse" in one:
            kept = one["never_worse"]
            seconds = f"{one['seconds'] + kept['extra_seconds']:.1f}"
            never = {**one, **kept, "worse_modules": 0}
            rows.append([*_size_cells("  never worse", never), seconds])
            parts.append(
                f"{one['policy']}, never worse: the default's object kept for "
                f"{kept['default_kept']} of {one['modules']} modules; compiling twice took "
                f"{kept['extra_seconds']:.1f} s more, {kept['cpu_ratio']:.2f} times the CPU time"
            )
    for one in found["policies"]:
        if not one["is_default"]:
            projects = [_size_cells(part["project"], part) for part in one["projects"]]
            parts.append(format_table([one["policy"], *header[1:-1]], projects))
        if one.get("images") and not one["is_default"]:
            parts.append(_image_table(one["policy"], one["images"]))
    return "\n\n".join([format_table(["policy", *header[1:]], rows), *parts])


def _image_table(policy: str, images: Sequence[Found]) -> str:
    """Format by how much linked images differ from the default's."""
    parts = ("text", "unwind", "rodata", "file")
    rows, columns = [], []
    for one in images:
        sizes = [(one[f"{part}_bytes"], one[f"default_{part}_bytes"]) for part in parts]
        loaded = tuple(map(sum, zip(*sizes[:3], strict=True)))
        changes = [size / default - 1 if default else 0.0 for size, default in (*sizes, loaded)]
        columns.append(changes)
        rows.append([one["project"], *(f"{change:+.2%}" for change in changes)])
    means = [statistics.fmean(column) for column in zip(*columns, strict=True)]
    rows.append(["(mean)", *(f"{mean:+.2%}" for mean in means)])
    return format_table([f"{policy}, linked", *parts, "text+unwind+rodata"], rows)


def _size_cells(name: str, totals: Found) -> list[str]:
    return [
        name,
        str(totals["modules"]),
        f"{totals['size_bytes']:,}",
        f"{totals['default_size_bytes']:,}",
        percent(totals["size_bytes"], totals["default_size_bytes"]),
        percent(totals["exec_bytes"], totals["default_exec_bytes"]),
        str(totals["worse_modules"]),
    ]


_OUTCOMES: Mapping[str, Callable[[Found], list[tuple[str, str]]]] = {
    "inlining": lambda result: [],
    "learn_to_optimize": _errors,
    "tensor_graphs": _costs,
}
_NEXT: Mapping[str, Callable[[str, Run, argparse.Namespace], str]] = {
    "inlining": _evaluate_inlining,
    "learn_to_optimize": _evaluate_function,
    "tensor_graphs": _optimize,
}
_TABLES: Mapping[str, Callable[[Found], str]] = {
    "inlining": _size_tables,
    "learn_to_optimize": _function_table,
    "tensor_graphs": _model_tables,
}
