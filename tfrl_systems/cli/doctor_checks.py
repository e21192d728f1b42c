"""The checks of `tfrl doctor`. Each check tries the thing that it checks."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import tempfile
import time

from environments.errors import UserError
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.clang_probe import MINIMUM_VERSION, PROBE_IR, probe_clang
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.corpus.bitcode_compilers import find_compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.plugin.toolchain import MINIMUM_VERSION as PLUGIN_VERSION
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.drivers.collect import Collect, make_pool

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
_CLANGS = ("clang", *(f"clang-{version}" for version in range(17, 24)))
_PROBE_TIMEOUT_S = 60.0
_PROBE_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
probe (float[2] x) => (float[2] y) { y = Relu(x) }"""


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
      name: the thing that was tried.
      works: whether it works.
      needed: whether the project needs it to work.
      found: what the check found.
      remedy: what the user should do; "" if nothing.
    """

    name: str
    works: bool
    needed: bool
    found: str
    remedy: str = ""


def examine(cache: pathlib.Path) -> list[Check]:
    """Run all checks, in the order in which to show them; `cache` is the file of compiles."""
    return [
        _learning(),
        _embedded_llvm(),
        _embedded_clang(),
        _onnx(),
        _cache(cache),
        _temporary_directory(),
        *clangs(),
        *plugins(),
        _ray(),
    ]


def versions() -> dict[str, str]:
    """Return the versions of Python, the system, packages and LLVM, by name."""
    versions = {"python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
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


def _embedded_llvm() -> Check:
    name = "embedded LLVM"
    compiler = EmbeddedLlvm(_PROBE_TIMEOUT_S)
    try:
        with tempfile.TemporaryDirectory(prefix="tfrl-doctor-") as directory:
            path = pathlib.Path(directory) / "probe.ll"
            path.write_text(PROBE_IR)
            module = Module("probe", path, ".", "unknown")
            compiled = run_policy(compiler, module, lambda site: int(site.default))
            features = len(compiler.announced)
    except (UserError, OSError) as error:
        remedy = f"install it again: pip install --force-reinstall llvmlite; TMPDIR is {_tmp()}"
        return Check(name, False, True, str(error), remedy)
    finally:
        compiler.close()
    text = (
        f"compiles; asked for {len(compiled.decisions)} decisions with {features} features, "
        f"{compiled.size.text_bytes} bytes of text"
    )
    return Check(name, len(compiled.decisions) > 0, True, text)


def _embedded_clang() -> Check:
    name = "embedded clang"
    try:
        return Check(name, True, False, f"{find_compiler().version}: tfrl corpus build works")
    except UserError as error:
        remedy = "pip install ziglang, or give tfrl corpus build a clang by --compiler"
        return Check(name, False, False, str(error), remedy)


def _onnx() -> Check:
    name = "ONNX"
    try:
        import onnx
        import onnxruntime

        from environments.tensor_graphs.onnx_io import OLDEST_OPSET, read, write

        written = write(read(onnx.parser.parse_model(_PROBE_MODEL)))
        providers = onnxruntime.get_available_providers()
        session = onnxruntime.InferenceSession(written.SerializeToString(), providers=providers)
        (result,) = session.run(None, {"x": [-1.0, 2.0]})
    except Exception as error:  # onnxruntime's exceptions have no common base class
        remedy = "install them again: pip install --force-reinstall onnx onnxruntime"
        return Check(name, False, True, " ".join(str(error).split()), remedy)
    newest = onnx.defs.onnx_opset_version()
    opsets, by = f"{OLDEST_OPSET} to {newest}", ", ".join(providers)
    text = f"models of opset {opsets} are read, written and run by {by}"
    return Check(name, result.tolist() == [0.0, 2.0], True, text)


def clangs() -> list[Check]:
    """Check each clang on PATH."""
    checks = [_clang(name) for name in _CLANGS if shutil.which(name)]
    if checks:
        return checks
    remedy = f"none is needed; --compiler takes a clang of version {MINIMUM_VERSION} or newer"
    return [Check("clang", False, False, "none on PATH", remedy)]


def _clang(name: str) -> Check:
    try:
        facts = probe_clang(shutil.which(name) or name)
    except UserError as error:
        return Check(name, False, False, str(error), "use --compiler embedded, or another clang")
    text = f"version {facts.version}: asks for advice, {len(facts.announced)} features"
    if facts.announces_default:
        return Check(name, True, False, f"{text}, names callees: --compiler {name} works")
    remedy = (
        "features derived from callees' names are unknown to policies on this clang; a newer one, "
        "or --compiler embedded, has them"
    )
    return Check(name, True, False, f"{text}, its own default cannot be asked for", remedy)


def plugins() -> list[Check]:
    """Check for each clang on PATH that is new enough whether a plugin can be built for it."""
    return [
        _plugin(name)
        for name in _CLANGS
        if shutil.which(name) and (name == "clang" or int(name.split("-")[1]) >= PLUGIN_VERSION)
    ]


def _plugin(clang: str) -> Check:
    name = f"plugin for {clang}"
    try:
        toolchain = find_toolchain(clang)
    except UserError as error:
        text, _, remedy = str(error).rpartition("; ")
        return Check(name, False, False, text, remedy)
    text = f"headers in {toolchain.include}, built by {toolchain.compiler}: tfrl build works"
    return Check(name, True, False, text)


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


def _cache(path: pathlib.Path) -> Check:
    store = TrajectoryStore(path)
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
