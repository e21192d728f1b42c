"""The verb `tfrl doctor`, which says what works on this machine and how to mend what does not.

Each check tries the thing that it checks.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import pathlib
import platform
import shutil
import tempfile
import time
from typing import Any

from environments.caches.cache import Cache
from environments.caches.table import COMPILES
from environments.errors import UserError
from environments.machine import package_versions
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import path_of_file
from tfrl_systems.experiments.records import find_system, system_names
from tfrl_systems.training.system import Check

_DESCRIPTION = """\
Tries what the other verbs need: versions, the embedded compiler, each clang on PATH, ONNX, Ray,
the cache, the temporary directory. Ends with status 0 if everything works that needs nothing else
installed.

  tfrl doctor
  tfrl doctor --json > report.json    to attach to a bug report
"""

_PACKAGES = (
    "tfrl-systems",
    "tensorflow",
    "tf-agents",
    "tensorflow-probability",
    "tensorboard",
    "numpy",
    "llvmlite",
    "ziglang",
    "pyelftools",
    "onnx",
    "onnxruntime",
    "graph-nets",
    "dm-sonnet",
    "ray",
    "rich",
)
# What an extra brings, by the module to look for; each is optional.
_EXTRAS = {
    "gymnasium": ("gymnasium", "the environments as Gymnasium's, by environments.gymnasium"),
    "bench": ("stable_baselines3", "tfrl bench compares with Stable-Baselines3"),
    "cma": ("cma", "the baseline cma of learn_to_optimize"),
    "peers": ("onnxsim", "python -m tools.studies files compares with other optimisers"),
}


def add_parser(subparsers: Any) -> None:
    """Add `doctor` to the verbs."""
    parser = shared.add_verb(subparsers, "doctor", "what works on this machine", _DESCRIPTION)
    parser.add_argument(
        "--cache",
        type=path_of_file,
        default=COMPILES.path,
        metavar="FILE",
        help="the cache to look at (default: %(default)s)",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check this machine, and show the results; return 1 if something needed does not work."""
    checks, versions = _examine(options.cache), _versions()
    works = all(check.works for check in checks if check.needed)
    if options.json:
        described = list(map(dataclasses.asdict, checks))
        show_json({"works": works, "versions": versions, "checks": described})
        return 0 if works else 1
    width = max(map(len, [*versions, *(check.name for check in checks)]))
    for name, version in versions.items():
        show(f"       {name.ljust(width)}  {version}")
    for check in checks:
        mark = "ok" if check.works else "FAILS" if check.needed else "no"
        show(f"{mark:5}  {check.name.ljust(width)}  {check.found}")
        if check.remedy:
            show(f"{'':7}{'':{width}}  -> {check.remedy}")
    show("everything needed works" if works else "something needed does not work; see FAILS above")
    return 0 if works else 1


def _examine(cache: pathlib.Path) -> list[Check]:
    """Run all checks, in the order in which to show them; `cache` is the file of compiles."""
    return [
        _learning(),
        _cache(cache),
        _temporary_directory(),
        *(check for name in system_names() for check in find_system(name).checks()),
        _ray(),
        *(_extra(name, *words) for name, words in _EXTRAS.items()),
    ]


def _versions() -> dict[str, str]:
    """Return the versions of Python, the system, packages and LLVM, by name."""
    versions = {"python": platform.python_version(), "system": platform.platform()}
    for name, version in package_versions(_PACKAGES).items():
        versions[name] = version or "not installed"
    if importlib.util.find_spec("llvmlite"):
        from llvmlite import binding

        versions["LLVM in llvmlite"] = ".".join(map(str, binding.llvm_version_info))
    return versions


def _learning() -> Check:
    try:
        import tensorflow
        import tf_agents
    except ImportError as error:
        return Check(
            "TensorFlow and TF-Agents",
            False,
            True,
            " ".join(str(error).split()),
            "make the environment again: bash tools/check.sh",
        )
    devices = ", ".join(device.name for device in tensorflow.config.list_physical_devices())
    text = f"import; TF-Agents {tf_agents.__version__}, devices: {devices}"
    return Check("TensorFlow and TF-Agents", True, True, text)


class _ProbeRunner:
    """Answers a job with its square."""

    def load(self, data: object) -> None:
        """Load nothing."""

    def run(self, job: int) -> int:
        """Return the square."""
        return job * job

    def close(self) -> None:
        """Release nothing."""


def _ray() -> Check:
    """Start a cluster on this machine, and run a job there."""
    from tfrl_systems.drivers.collect import Collect, make_pool

    name = "Ray"
    began_s = time.monotonic()
    try:
        with make_pool(Collect("ray"), _ProbeRunner) as pool:
            result = pool.map([7])
            seconds = time.monotonic() - began_s
    except UserError as error:
        text, _, remedy = str(error).rpartition("; ")
        return Check(name, False, False, text or str(error), remedy)
    text = f"a cluster on this machine takes jobs after {seconds:.1f} s: --collect ray works"
    return Check(name, result == [49], False, text)


def _extra(name: str, module: str, text: str) -> Check:
    """Return whether an extra of the package is installed."""
    if importlib.util.find_spec(module):
        return Check(f"extra {name}", True, False, text)
    remedy = f"pip install 'tfrl-systems[{name}]'"
    return Check(f"extra {name}", False, False, f"not installed: {text}", remedy)


def _cache(path: pathlib.Path) -> Check:
    store = Cache(path, COMPILES.bound_bytes, COMPILES.version)
    store.open()
    store.close()
    if store.problem:
        remedy = "free some space, or name another place by --cache"
        return Check("cache", False, False, f"{path}: {store.problem}", remedy)
    size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    free = shutil.disk_usage(path.parent).free
    return Check("cache", True, False, f"{path}: {size / 1e6:.1f} MB, {free / 1e9:.1f} GB free")


def _temporary_directory() -> Check:
    name = "temporary directory"
    try:
        with tempfile.TemporaryDirectory(prefix="tfrl-doctor-") as directory:
            os.mkfifo(pathlib.Path(directory) / "pipe")
    except OSError as error:
        remedy = "set TMPDIR to a directory on a local file system that can be written"
        return Check(name, False, True, f"{_tmp()}: {error}", remedy)
    return Check(name, True, True, f"{_tmp()}: takes files and named pipes")


def _tmp() -> str:
    try:
        return tempfile.gettempdir()
    except OSError as error:
        return str(error)
