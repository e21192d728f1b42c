"""A run says how often it evaluated the function: as often as the function was evaluated."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
from contextlib import nullcontext

import pytest

from environments.errors import UserError
from tests.tfrl_systems.double_well import double_well
from tests.tfrl_systems.small_runs import DREAMING
from tfrl_systems import experiments
from tfrl_systems.cli.main import main
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.systems.learn_to_optimize import SYSTEM
from tfrl_systems.systems.learn_to_optimize.problem import Problem

COUNTED = """
import numpy as np
def cost(points):
    with open({count!r}, "ab") as file:
        file.write(b"%d\\n" % len(points))
    return ((points[:, :-1] - np.sin(points[:, -1:])) ** 2).sum(axis=1)
"""
pytestmark = pytest.mark.usefixtures("no_saved_models")
SMALL = {
    **{"hidden_sizes": (4,), "num_chunks": 2, "episodes_per_chunk": 3, "evaluate_every": 1},
    **{"checkpoint_every": 1},
}
OF_AGENT = {
    "ppo": {},
    "reinforce": {"sampler": "heterogeneous"},
    "es": {},
    "bc_max": {"descent_rounds": 2, "explored": 1, "updates": 2},
    "world_model": DREAMING,
    "surrogate": {"evaluations": 9, "distil_steps": 20},
}
ROOT = pathlib.Path(__file__).parents[4]
PIPES = Collect("pipes", 1)
HERE = Collect()


@pytest.fixture
def function(tmp_path, monkeypatch):
    """A function, and what reads how many points it has seen."""
    count = tmp_path / "count"
    (tmp_path / "counted_cost.py").write_text(COUNTED.format(count=str(count)))
    monkeypatch.syspath_prepend(tmp_path)
    return "counted_cost:cost", lambda: sum(map(int, count.read_text().split()))


class Stopping(experiments.Reporter):
    """Stops the run after its first iteration, as Ctrl-C does, and keeps what was said."""

    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)

    def task(self, name, total):
        def advance(steps: int = 1) -> None:
            raise KeyboardInterrupt

        return advance


def train(function, agent, workdir, collect=HERE, shape=(2, 1), reporter=None, **settings):
    settings = {**SMALL, **OF_AGENT[agent], **settings}
    sampler = settings.pop("sampler", "random")
    return experiments.train(
        "learn_to_optimize",
        agent=agent,
        function=function,
        dimensions=shape[0],
        free=shape[1],
        sampler=sampler,
        workdir=workdir,
        iterations=2,
        settings=settings,
        collect=collect,
        resume=True,
        reporter=reporter or experiments.Reporter(),
    ).result


@pytest.mark.parametrize(
    "agent, shape, collect",
    [
        pytest.param("ppo", (2, 1), HERE, marks=pytest.mark.ci),
        pytest.param("reinforce", (4, 2), HERE, marks=pytest.mark.ci),
        ("es", (3, 2), HERE),
        pytest.param("es", (3, 2), PIPES, marks=pytest.mark.ci),
        ("bc_max", (3, 1), HERE),
        pytest.param("surrogate", (3, 2), PIPES, marks=pytest.mark.ci),
        pytest.param("world_model", (4, 1), HERE, marks=pytest.mark.slow),
        *[
            pytest.param(agent, shape, collect, marks=pytest.mark.slow)
            for agent in OF_AGENT
            for shape in ((2, 1), (3, 1), (3, 2), (4, 1), (4, 2))
            for collect in (HERE, PIPES)
        ],
    ],
)
def test_a_run_counts_what_the_function_saw(function, agent, shape, collect, tmp_path):
    """Also where it was stopped between, and went on."""
    name, seen = function
    reporter = Stopping()
    with pytest.raises(KeyboardInterrupt):
        train(name, agent, tmp_path / "run", collect, shape, reporter)
    before = seen()
    if agent == "surrogate":
        assert "9 evaluations in 2 batches" in "\n".join(reporter.lines)
    elif agent != "bc_max":
        # 2 chunks · 3 episodes · 3 points, for ES at both ends of each direction.
        each = 36 if agent == "es" else 18
        assert f"{each} in each of 2 iterations" in "\n".join(reporter.lines)
    whole = train(name, agent, tmp_path / "run", collect, shape)
    assert whole["function_evaluations"] == seen() > before > 0
    assert "truth_evaluations" not in whole and "mse" not in whole["evaluation"]["last"]


@pytest.mark.ci
def test_no_trial_is_asked_twice_and_workers_change_nothing(function, tmp_path):
    """Trials of a run that was stopped are in its file, even those of no checkpoint."""
    name, seen = function
    whole = train(name, "surrogate", tmp_path / "whole")
    assert seen() == 9
    half = tmp_path / "half"
    with pytest.raises(KeyboardInterrupt):
        train(name, "surrogate", half, PIPES, reporter=Stopping())
    assert seen() == 9 + 5
    # As if it had been killed within the second batch: two trials of it are written down.
    lines = (tmp_path / "whole" / "trials.csv").read_text().splitlines(keepends=True)
    with (half / "trials.csv").open("a") as file:
        file.writelines(lines[6:8])
    resumed = train(name, "surrogate", half)
    assert seen() == 9 + 9 - 2
    for field in ("experience_sha256", "policy_sha256", "function_evaluations"):
        assert resumed[field] == whole[field]
    (half / "answers.csv").unlink()
    assert "expected" in (tmp_path / "whole" / "answers.csv").read_text()


@pytest.mark.ci
def test_a_log_is_learned_from_without_the_function(tmp_path, capfd):
    """Trials know c up to 2 of 10; what lies beyond is said to be unsure."""
    rows = ["x0,c0,value"]
    for number in range(60):
        x, c = (number * 7 % 60) / 30 - 1, (number % 8) / 4
        rows.append(f"{x},{c},{'' if x < -0.9 else (x - c / 2) ** 2}")
    log = tmp_path / "trials.csv"
    log.write_text("\n".join(rows))
    words = ["train", "learn_to_optimize", "--agent", "surrogate", "--log", str(log), "--json"]
    learned = ["--bounds=-1,10", "--set=distil_steps=50", "--workdir", str(tmp_path / "run")]
    assert main([*words, *learned]) == 0
    said = capfd.readouterr()
    result = json.loads(said.out)
    assert "function_evaluations" not in result
    assert result["surrogate"]["trials"] == 60 and result["surrogate"]["failed"] > 0
    assert "unsure at " in said.err and "trials there would tell" in said.err
    assert main(["evaluate", "learn_to_optimize", "--policy", str(tmp_path / "run/policy")]) == 1
    assert "learned from a log alone" in capfd.readouterr().err
    # What is said to be possible with the policy is.
    policy = tmp_path / "run" / "policy"
    described = json.loads((policy / "policy.json").read_text())
    assert described["use"] and not any("evaluate" in way for way in described["use"])
    tfrl, *words_of_next = shlex.split(SYSTEM.next_command(policy, Problem(log=log)))
    assert tfrl == "tfrl" and words_of_next[-1] == "run.onnx"
    assert main([*words_of_next[:-1], str(tmp_path / "run.onnx")]) == 0
    for more in (["--set=evaluations=5"], ["--agent", "ppo"], ["--bounds=0,1"]):
        assert main([*words, *more, "--workdir", str(tmp_path / "none")]) in (1, 2)
        assert capfd.readouterr().err.count("\n") == 1


def test_a_policy_by_name_was_not_learned_from_the_run_in_this_directory(
    tmp_path, capfd, monkeypatch
):
    seconds = dict.fromkeys(("broadcasting", "waiting", "training"), 1.0)
    written = {"function_evaluations": 7, "seconds": seconds}
    (tmp_path / "result.json").write_text(json.dumps(written))
    monkeypatch.chdir(tmp_path)
    words = ("evaluate", "learn_to_optimize", "--function", "sphere", "--policy", "random")
    assert main([*words, "--json"]) == 0
    (policy,) = json.loads(capfd.readouterr().out)["policies"]
    assert (policy["learned_from"], policy["learning_seconds"]) == (0, 0)


@pytest.mark.ci
def test_a_run_goes_on_from_a_log(function, tmp_path):
    name, seen = function
    first = train(name, "surrogate", tmp_path / "first")
    log = tmp_path / "first" / "trials.csv"
    more = experiments.train(
        "learn_to_optimize",
        agent="surrogate",
        function=name,
        log=log,
        workdir=tmp_path / "more",
        iterations=1,
        settings={"evaluations": 3, "distil_steps": 20, "hidden_sizes": (4,)},
        reporter=experiments.Reporter(),
    ).result
    assert seen() == first["function_evaluations"] + 3 == 12
    assert more["function_evaluations"] == 3 and more["surrogate"]["trials"] == 12


def test_true_minima_cost_what_is_said(function, tmp_path, capfd):
    name, seen = function
    result = train(name, "es", tmp_path / "run", judge="truth")
    assert result["function_evaluations"] == seen()
    # One tuned coordinate: 2,705 evaluations for each of 21 c.
    assert result["truth_evaluations"] == 21 * 2705
    assert result["evaluation"]["last"]["mse"] > 0
    before = seen()
    words = ["evaluate", "learn_to_optimize", "--policy", str(tmp_path / "run" / "policy")]
    assert main([*words, "--policy", "scipy", "--json"]) == 0
    said = capfd.readouterr()
    counted = json.loads(said.out)
    assert counted["function_evaluations"] == seen() - before
    # They were kept, and are confirmed once.
    assert counted["truth_evaluations"] == 21
    assert "a search for the least value at 21 c takes about 56,805 evaluations" in said.err
    learned, scipy = counted["policies"]
    assert learned["evaluations"] == 0 < scipy["evaluations"]
    before = seen()
    assert main([*words, "--judge", "values", "--json"]) == 0
    assert "truth" not in capfd.readouterr().err
    assert seen() - before == 21


def test_another_function_does_not_go_on_with_a_run(function, tmp_path):
    name, _ = function
    with pytest.raises(KeyboardInterrupt):
        train(name, "es", tmp_path / "run", reporter=Stopping())
    module = tmp_path / "counted_cost.py"
    before = module.read_text()
    module.write_text(before.replace("np.sin", "np.cos"))
    with pytest.raises(UserError, match="source_sha256") as caught:
        train(name, "es", tmp_path / "run")
    assert "\n" not in str(caught.value)
    module.write_text(before + "cost.bounds = (-2, 2)")
    with pytest.raises(UserError, match="bounds"):
        train(name, "es", tmp_path / "run")
    module.write_text(before)
    assert train(name, "es", tmp_path / "run")["iterations"] == 2
    module.write_text(before.replace("np.sin", "np.cos"))
    policy = tmp_path / "run" / "policy"
    with pytest.raises(UserError, match="its source has changed; to judge .* --function"):
        experiments.evaluate("learn_to_optimize", policies=[policy])
    experiments.evaluate("learn_to_optimize", policies=[policy], function=name)


def test_a_run_introduces_its_function(tmp_path, monkeypatch, capfd):
    (tmp_path / "plant.py").write_text("def cost(p):\n    return p[:, 0]\n")
    monkeypatch.chdir(tmp_path)
    words = ["train", "learn_to_optimize", "--agent", "es", "--function", "plant:cost"]
    small = [f"--set={name}={value}" for name, value in {**SMALL, "hidden_sizes": 4}.items()]
    words += [*small, "--iterations", "1", "--bounds=-5,5", "--workdir", "run", "--json"]
    assert main(words) == 0
    said = capfd.readouterr()
    assert "plant:cost: each coordinate in [-5, 5]; values spread by 2.87" in said.err
    # 256 + 2 chunks · 2 ends · 3 episodes · 3 points + 21 c.
    assert "36 in each of 1 iterations, 21 in each validation" in said.err
    assert ": 313 in all" in said.err
    assert json.loads(said.out)["function_evaluations"] == 313


@pytest.mark.parametrize("collect", [HERE, pytest.param(PIPES, marks=pytest.mark.ci)])
def test_a_function_that_ends_its_process_ends_the_run_in_one_line(tmp_path, monkeypatch, collect):
    """It measures well; whoever asks a second time is gone."""
    (tmp_path / "deadly.py").write_text(
        "import os\ncalls = []\ndef cost(p):\n    calls.append(1)\n"
        "    return p[:, 0] if len(p) == 256 else os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="deadly:cost: .*ended with status 3") as caught:
        train("deadly:cost", "es", tmp_path / "run", collect)
    assert "\n" not in str(caught.value)


def test_a_function_of_python_is_taken_by_its_name(tmp_path):
    plan = experiments.plan("learn_to_optimize", agent="ppo", function=double_well)
    assert plan.problem.function == f"{double_well.__module__}:double_well"
    for function in (lambda points: points[:, 0], pathlib.Path(), 3):
        with pytest.raises(UserError, match="function: expected a function that has a name"):
            experiments.plan("learn_to_optimize", agent="ppo", function=function)


SCRIPT = """
import numpy as np
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.systems.learn_to_optimize import SYSTEM
from tfrl_systems.systems.learn_to_optimize.problem import Problem

def cost(points):
    return (points[:, 0] - np.sin(points[:, 1])) ** 2

if __name__ == "__main__":
    run = experiments.train(
        "learn_to_optimize",
        agent="es",
        function=cost,
        bounds=[(-2, 2), (0, 1)],
        workdir="run",
        iterations=1,
        settings={"num_chunks": 2, "episodes_per_chunk": 4, "hidden_sizes": (4,)},
        collect=Collect("pipes", 1),
        reporter=experiments.Reporter(),
    )
    found = experiments.evaluate("learn_to_optimize", policies=[run.policy, "scipy"])
    print(run.result["function_evaluations"], found["policies"][1]["mse"] < 1e-9)
"""


@pytest.mark.ci
def test_a_function_of_a_script_is_learned_by_workers(tmp_path, capfd):
    """Elsewhere its policy says that the function is not there."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    # 256 for the scale; 2 ends of 2 directions of 4 episodes of 3 points; 21 c.
    assert done.stdout.split() == [str(256 + 2 * 2 * 4 * 3 + 21), "True"], done.stderr
    words = ["evaluate", "learn_to_optimize", "--policy", str(tmp_path / "run" / "policy")]
    assert main(words) == 1
    assert "expected cost in this notebook or script, found none" in capfd.readouterr().err


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_values_of_any_size_are_learned(tmp_path, monkeypatch, factor, recwarn):
    (tmp_path / f"sized_{factor > 1}.py").write_text(
        f"def cost(p):\n    return {factor} * (1 + (p[:, 0] - p[:, 1] / 2) ** 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = train(f"sized_{factor > 1}:cost", "es", tmp_path / "run")
    assert 1 < result["evaluation"]["last"]["cost"] / factor < 4
    assert not [str(warning.message) for warning in recwarn if "overflow" in str(warning.message)]
    with pytest.raises(UserError, match="squares are finite") if factor > 1 else nullcontext():
        experiments.evaluate("learn_to_optimize", policies=[tmp_path / "run" / "policy"])
