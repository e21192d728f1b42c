"""Prepares the TensorFlow stack before any test module imports TensorFlow; shared fixtures."""

import gc
import os
import pathlib
import signal

import filelock
import pytest

import environments  # noqa: F401
from tests.lending import Lender
from tests.saved_models import without_saved_models


def pytest_collection_modifyitems(items):
    """What takes long and waits for processes comes first, so that nobody waits at the end."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/environments/"))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """In a new environment, one worker compiles to bytecode what all import; the others wait.

    tools/check.sh says so by NO_BYTECODE.
    """
    if "NO_BYTECODE" not in os.environ or "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    # The directory that all workers share.
    base = pathlib.Path(session.config.option.basetemp).parent
    is_compiled = base / "is_compiled"
    with filelock.FileLock(base / "compiling"):
        if not is_compiled.exists():
            outcome = yield
            is_compiled.touch()
            return outcome
    return (yield)


def pytest_collection_finish(session):
    """Spares Python the search for garbage among what was imported: a quarter of the time.

    Not even once, because that search takes half a second.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def default_signals():
    """For tests that send signals: children that they start do not ignore any.

    What runs in the background of a shell, under nohup or from cron ignores SIGINT or SIGHUP, and
    so does every process that it starts.
    """
    defaults = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGQUIT: signal.SIG_DFL,
        signal.SIGTERM: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory) -> pathlib.Path:
    """One for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def lend(shared_directory):
    """Lends directories that are made once for all workers: `lend(name, make)`."""
    shelf = shared_directory / "lent"
    shelf.mkdir(exist_ok=True)
    lender = Lender(shelf)
    yield lender
    assert not lender.changed(), "a test changed what it had borrowed; it should have made a copy"


@pytest.fixture(scope="session")
def plugin_cache(shared_directory):
    """A cache for plugins, which take a while to build; clang would split its path at spaces."""
    return shared_directory / "my cache"


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """Has pip, and so the tool, look into a directory only."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.fixture
def no_saved_models():
    """Spares policies the SavedModel where nobody reads it: its tracing takes half of a tiny run.

    The files for NumPy and for readers are written all the same.
    """
    with without_saved_models():
        yield


@pytest.fixture
def work_clock(monkeypatch):
    """Models take as long as they have operators, on a machine with whatever load."""
    from tests.environments.tensor_graphs.selection.fakes import WorkClock

    WorkClock().install(monkeypatch)
