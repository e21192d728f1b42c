from __future__ import annotations

import pytest

from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from tests.environments.inlining.small_modules import HAND_WORKED, write_module
from tests.requirements import need_programs

CLANGS = ("clang-19", "clang-22")


@pytest.fixture(scope="session")
def embedded():
    compiler = EmbeddedLlvm(timeout_s=60)
    yield compiler
    compiler.close()


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


@pytest.fixture(params=CLANGS)
def clang(request, clangs):
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
