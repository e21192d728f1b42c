"""The verb `tfrl export`, which writes a policy in the form in which others use it."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import path_of_file

_DESCRIPTION = """\
Writes a policy in the form in which others use it.

  tfrl export --policy runs/my/policy --format clang-plugin --compiler clang-19 -o inliner.so
  clang-19 -Oz -fpass-plugin=./inliner.so -c x.c

clang-plugin is one file for one clang and needs nothing else installed. It decides where functions
are compiled for size (-Oz) and nowhere else. It is built with the headers of that clang's LLVM
(llvm-N-dev) and a C++ compiler. `tfrl build` does all of this by itself for a whole build.

  tfrl train inlining --agent bc_max --corpus runs/mine --workdir runs/mlgo \\
    --set scope=all --set features=cost_estimate,callee_users,callee_basic_block_count
  tfrl export --policy runs/mlgo/policy --format mlgo -o model

mlgo is a directory for those who build LLVM with a model inside, laid out as ml-compiler-opt does:
a SavedModel and output_spec.json. LLVM feeds it its own features alone, and no linkage or history;
a policy that needs others is refused.

  tfrl export --policy runs/ackley/policy --format onnx -o optimiser.onnx

onnx is a learned optimiser as a model from c [N, k] to x, all scaled to [-1, 1], for onnxruntime.
"""
_FORMATS = ("clang-plugin", "mlgo", "onnx")


def add_parser(subparsers: Any) -> None:
    """Add `export` to the verbs."""
    parser = shared.add_verb(
        subparsers, "export", "a policy in the form in which others use it", _DESCRIPTION
    )
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
    found, use = _export(options)
    if options.json:
        show_json(found)
        return 0
    made_for = f", for {found['compiler']}" if "compiler" in found else ""
    show(f"{found['path']}: {found['size_bytes']:,} bytes{made_for}")
    show(f"use it with: {use}")
    return 0


def _export(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Write the file or directory; return what is told of it, and how to use it."""
    output = options.output
    if options.format == "onnx":
        from tfrl_systems.systems.learn_to_optimize.exporting import export_onnx

        use = f"onnxruntime.InferenceSession('{output}').run(['x'], {{'c': c}})"
        return export_onnx(options.policy, output), use
    from tfrl_systems.systems.inlining import exporting

    if options.format == "mlgo":
        found = exporting.export_mlgo(options.policy, options.compiler or "embedded", output)
        return found, f"build LLVM with -DLLVM_INLINER_MODEL_PATH={output.resolve()}"
    compiler = options.compiler or "clang"
    found = exporting.export_plugin(options.policy, compiler, output)
    return found, f"{compiler} -Oz -fpass-plugin={output.resolve()} -c x.c"
