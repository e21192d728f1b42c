"""Help, exit statuses, what a user sees of a mistake, and Ctrl-C at any moment."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys

import pytest

from tfrl_systems.cli import cache, main, train

HELPS = (
    "",
    *("train", "train inlining", "evaluate inlining", "bench inlining"),
    *("build", "export", "replay", "corpus", "corpus build", "corpus info"),
    *("cache", "cache info", "cache clear", "doctor"),
)


@pytest.mark.parametrize("verb", HELPS)
def test_help_shows_an_example_or_where_to_look(tfrl, verb):
    ran = tfrl(*verb.split(), "--help")
    assert ran.status == 0 and not ran.err
    assert "tfrl" in ran.out and "--help" in ran.out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from tfrl_systems.cli.main import make_parser; make_parser().format_help();"
        "print([m for m in ('tensorflow', 'numpy', 'rich', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("system", "agent", "fields", "others"),
    [
        ("inlining", "bc_max", ("num_rounds=", "explore=true"), ("num_chunks=", "clip=")),
        ("tensor_graphs", "ppo", ("clip=", "head=local"), ("action_std=", "num_waves=")),
    ],
)
def test_the_fields_of_the_agent_are_explained_in_the_help(tfrl, system, agent, fields, others):
    """Those that the system's specs leave without effect are not shown."""
    out = tfrl("train", system, "--agent", agent, "--help").out
    lines = out.partition(f"\nwith --agent {agent}: ")[2].splitlines()
    assert not [field for field in ("iterations=", *fields) if not starts(lines, field)]
    assert not [field for field in ("seed=", *others) if starts(lines, field)]


def starts(lines, field):
    return any(line.startswith(f"  {field}") for line in lines)


def test_without_an_agent_the_help_names_those_that_can_learn(tfrl):
    last = tfrl("train", "inlining", "--help").out.splitlines()[-1]
    assert last.endswith("tfrl train inlining --agent {ppo,reinforce,es,bc_max} --help")


INLINING = "train inlining --agent bc_max --corpus c --workdir w"
LEARN = "train learn_to_optimize --agent es --workdir w --function"
GRAPHS = "evaluate tensor_graphs --policy"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "usage:"),
        ("fly", "usage:"),
        ("train inlining", "usage:"),
        ("train inlining --agent q --corpus c --workdir w", "usage:"),
        (f"{INLINING} --set speed=3", "num_rounds="),
        (f"{INLINING} --set iterations", "expected field=value"),
        (f"{LEARN} sphere --chunk-timeout 9", "expected it with --collect pipes"),
        ("evaluate inlining --policy default --corpus c --workers 0", "usage:"),
        ("evaluate learn_to_optimize --policy random", "--function"),
        (f"{GRAPHS} greedy --model bert-tiny --objective magic", "magic"),
        ("build --policy never", "expected a command after --"),
        ("build --policy never -- /no/such/make", "expected a command after --"),
        ("build --policy never --compare /no -- true", "a plain build"),
        ("export --format onnx -o x", "expected --policy with --format onnx, found none"),
        ("replay", "usage:"),
        ("corpus build x --jobs many -o y", "usage:"),
        ("cache clear costs everything", "expected one of compiles, costs, verified_rules"),
    ],
)
def test_wrong_usage_is_status_2_and_leaves_nothing(tfrl, command, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = tfrl(*command.split())
    assert ran.status == 2 and not ran.out and message in ran.err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{LEARN} parabola", "expected one of ackley, "),
        (f"{LEARN} nowhere:cost", "nowhere"),
        ("train tensor_graphs --agent ppo --model gpt-9 --workdir w", "gpt-9"),
        ("evaluate inlining --policy nowhere --corpus c", "found 'nowhere'"),
        ("evaluate inlining --policy cost<x --corpus c", "found 'cost<x'"),
        ("evaluate inlining --policy . --corpus c", "expected a policy directory with policy.json"),
        (f"{GRAPHS} magic --model bert-tiny", "expected one of regions, removal, greedy"),
        (f"{GRAPHS} greedy --model gpt-9", "bert-tiny"),
        ("build --policy random -- true", "cannot be compiled into a plugin"),
        ("export --policy never --format clang-plugin --compiler /no -o x", "no program '/no'"),
        ("export --policy never --format mlgo -o x", "expected one that bc_max learned"),
        ("corpus info nowhere", "expected a corpus directory, found none at nowhere"),
        ("corpus build . -o x", "expected C or C++ sources or bitcode"),
        ("rules list none.json", "No such file"),
        ("rules verify broken.json", "expected JSON"),
        ("rules import broken.json -o x", "not a TASO rule file"),
        ("rules generate -o x --vocabulary poems", "choose among"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_1(tfrl, command, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    ran = tfrl(*command.split())
    assert ran.status == 1 and not ran.out
    (line,) = ran.err.splitlines()
    assert line.startswith("tfrl: ") and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]


def test_a_user_without_home_and_name():
    """Even the help names a file in the cache."""
    code = """
import os, pwd, sys
os.getuid = lambda: 1 << 30
from tfrl_systems.cli.main import main
sys.exit(main(["doctor", "--help"]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = (130, "", "tfrl: interrupted\n")


def press(*_):
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def press_while_something_loads(_):
    """Whose import says so in its own way."""
    try:
        press()
    except KeyboardInterrupt:
        raise ImportError("cannot import name 'half' from partially initialised module") from None


@pytest.mark.parametrize(
    ("module", "name", "run"),
    [
        (cache, "run_info", press),
        (cache, "run_info", press_while_something_loads),
        (importlib, "import_module", press),  # before the command line is read
    ],
)
def test_ctrl_c_in_a_verb(tfrl, module, name, run, default_signals, monkeypatch):
    monkeypatch.setattr(module, name, run)
    ran = tfrl("cache", "info")
    assert (ran.status, ran.out, ran.err) == INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_training_says_how_to_go_on(tfrl, default_signals, monkeypatch, tmp_path):
    monkeypatch.setattr(train.experiments, "train", lambda *_, **__: press())
    command = f"train inlining --agent bc_max --corpus c --workdir {tmp_path}"
    message = f"tfrl: interrupted; go on with: tfrl {command} --resume\n"
    for resume in ([], ["--resume"]):
        ran = tfrl(*command.split(), *resume)
        assert (ran.status, ran.out, ran.err) == (130, "", message)


def test_an_error_is_no_interruption(tfrl, default_signals, monkeypatch):
    def fail(_):
        raise ImportError("a fault of ours")

    monkeypatch.setattr(cache, "run_info", fail)
    with pytest.raises(ImportError, match="a fault of ours"):
        tfrl("cache", "info")


def test_an_ignored_ctrl_c_stays_ignored(tfrl, default_signals, monkeypatch):
    """As under nohup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(cache, "run_info", lambda _: press() or 0)
    assert tfrl("cache", "info").status == 0
    assert main.signal.getsignal(signal.SIGINT) is signal.SIG_IGN
