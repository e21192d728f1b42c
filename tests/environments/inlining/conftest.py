from __future__ import annotations

import pytest

from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from tests.environments.inlining.small_modules import HAND_WORKED, write_module, youngest_compiler
from tests.requirements import need_programs

CLANGS = ("clang-19", "clang-22")
# LLVM's headers take a quarter of a minute for each clang.
_PLUGINS = (pytest.param(CLANGS[0], marks=pytest.mark.ci), CLANGS[1])


@pytest.fixture(scope="session")
def embedded():
    compiler = EmbeddedLlvm(timeout_s=60)
    yield compiler
    compiler.close()


class Counting(EmbeddedLlvm):
    """Counts its compiles, and dies in those that it is told to."""

    num_compiles = num_deaths = 0

    def compile(self, module):
        self.num_compiles += 1
        compilation = super().compile(module)
        if self.num_deaths:
            self.num_deaths -= 1
            youngest_compiler().kill()
        return compilation


@pytest.fixture(scope="module")
def counting_compiler():
    compiler = Counting(timeout_s=60)
    assert compiler.announced
    yield compiler
    compiler.close()


@pytest.fixture
def counting(counting_compiler):
    """The embedded compiler; its `num_compiles` is 0."""
    counting_compiler.num_compiles = 0
    return counting_compiler


@pytest.fixture(scope="session")
def clangs():
    """Clangs by name, each probed once."""
    compilers: dict[str, SystemClang] = {}
    yield compilers
    for compiler in compilers.values():
        compiler.close()


@pytest.fixture(params=["embedded", *CLANGS])
def compiler(request, embedded, clangs):
    """Each compiler in turn; the clangs where they are installed."""
    if request.param == "embedded":
        return embedded
    return _clang(request.param, clangs)


@pytest.fixture(params=_PLUGINS)
def clang(request, clangs):
    """Each clang in turn, the older one in CI."""
    return _clang(request.param, clangs)


@pytest.fixture
def clang_19(clangs):
    return _clang("clang-19", clangs)


@pytest.fixture
def hand_worked(tmp_path):
    """As text: LLVM 19 reads no bitcode of LLVM 22."""
    return write_module(tmp_path, "hand_worked", HAND_WORKED, text=True)


@pytest.fixture
def good(tmp_path):
    """The same under another name, for what compiles after a module that does not."""
    return write_module(tmp_path, "good", HAND_WORKED, text=True)


def _clang(name, clangs):
    need_programs(name)
    if name not in clangs:
        clangs[name] = SystemClang(name, timeout_s=60)
    return clangs[name]
