"""The verb `tfrl export`, which writes a policy in the form in which others use it."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import path_of_file

_FORMATS = ("clang-plugin", "mlgo", "onnx")


def add_parser(subparsers: Any) -> None:
    """Add `export` to the verbs."""
    summary = "a policy in the form in which others use it"
    parser = shared.add_verb_of_few(subparsers, "export", summary)
    parser.description = "Writes a policy in the form in which others use it.\n\n"
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    parser.add_argument("--policy", required=True, metavar="DIR|NAME", help="what to export")
    parser.add_argument("--format", required=True, choices=_FORMATS, help="the form")
    parser.add_argument(
        "--compiler",
        metavar="CLANG",
        help="the clang that will load the plugin (default: clang); for mlgo, one of the LLVM that "
        "will read the model (default: embedded)",
    )
    parser.add_argument(
        *("-o", "--output"), type=path_of_file, required=True, metavar="PATH", help="what to write"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Export as the command line says."""
    report, use = _export(options)
    if options.json:
        show_json(report)
        return 0
    compiler = f", for {report['compiler']}" if "compiler" in report else ""
    show(f"{report['path']}: {report['size_bytes']:,} bytes{compiler}")
    show(f"use it with: {use}")
    return 0


def _export(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Write the file or directory; return what is told of it, and how to use it."""
    output = options.output
    if options.format == "onnx":
        from tfrl_systems.experiments.systems.learn_to_optimize.exporting import export_onnx

        use = f"onnxruntime.InferenceSession('{output}').run(['x'], {{'c': c}})"
        return export_onnx(options.policy, output), use
    from tfrl_systems.experiments.systems.inlining import exporting

    if options.format == "mlgo":
        report = exporting.export_mlgo(options.policy, options.compiler or "embedded", output)
        return report, f"build LLVM with -DLLVM_INLINER_MODEL_PATH={output.resolve()}"
    compiler = options.compiler or "clang"
    report = exporting.export_plugin(options.policy, compiler, output)
    return report, f"{compiler} -Oz -fpass-plugin={output.resolve()} -c x.c"
