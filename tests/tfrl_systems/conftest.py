"""A real corpus of a few tiny modules, runs to look at, and the command line in this process."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    NO_CALL_SITES,
    many_calls,
    write_corpus,
)
from tests.saved_models import without_saved_models
from tests.tfrl_systems import small_runs
from tests.tfrl_systems.small_runs import SmallRun
from tfrl_systems import experiments
from tfrl_systems.cli.main import main


def as_words(**settings: object) -> list[str]:
    """Settings as options of the command line."""
    return [f"--set={name}={value}" for name, value in settings.items()]


# Small enough that a run takes seconds; every iteration explores and fits all the same.
QUICK = as_words(num_models=2, epochs=3, hidden_sizes=8, num_rounds=2)


@pytest.fixture(scope="session")
def corpus(lend) -> pathlib.Path:
    modules = {
        "alpha/hand.c": HAND_WORKED,
        "alpha/many.c": many_calls(12),
        "beta/none.cc": NO_CALL_SITES,
        "beta/more.cc": many_calls(25),
        "gamma/other.c": many_calls(7),
    }
    return lend("corpus", lambda directory: write_corpus(directory, modules))


@pytest.fixture(scope="session")
def holdout(lend) -> pathlib.Path:
    modules = {"delta/a.c": many_calls(9), "delta/b.cc": many_calls(18)}
    return lend("holdout", lambda directory: write_corpus(directory, modules))


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cli") / "compiles.db"


@pytest.fixture(scope="session")
def small_run(corpus, cache, lend):
    """What a short run of an agent on a system is: `small_run(system, agent)`."""
    models = lend("models", small_runs.write_models)
    problems = small_runs.problems(models, corpus, cache)
    return lambda system, agent: SmallRun(system, agent, problems[system])


@pytest.fixture(scope="session")
def lent_run(small_run, lend):
    """Such a run, trained once for all workers: `lent_run(system, agent)`. Only read it.

    Its policy lacks the SavedModel.
    """

    def of(system: str, agent: str) -> experiments.Run:
        run = small_run(system, agent)

        def train(workdir: pathlib.Path) -> None:
            with without_saved_models():
                run.train(workdir)

        return run.read(lend(f"{agent}-{system}", train))

    return of


@dataclasses.dataclass(frozen=True)
class Ran:
    """One command: exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        """The one object on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def result(self):
        """The one object on stdout of a command that succeeded."""
        assert self.status == 0, self.err
        return self.json

    @property
    def benchmarks(self):
        """By name, those of a benchmark that succeeded."""
        return {benchmark["name"]: benchmark for benchmark in self.result["benchmarks"]}


@pytest.fixture
def tfrl(capsys):
    """Runs a command in this process."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse's, for wrong usage and --help
            status = end.code
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def trained(corpus, holdout, cache, lend) -> pathlib.Path:
    """The working directory of a run that nobody interrupted; only read it."""

    def train(workdir: pathlib.Path) -> None:
        assert main(train_arguments(corpus, holdout, cache, workdir)) == 0

    return lend("trained", train)


def train_arguments(corpus, holdout, cache, workdir) -> list[str]:
    options = {
        "--agent": "bc_max",
        "--corpus": corpus,
        "--holdout": holdout,
        "--cache": cache,
        "--workdir": workdir,
        "--iterations": 3,
        "--workers": 2,
    }
    words = [str(word) for pair in options.items() for word in pair]
    return ["train", "inlining", *words, *QUICK]
