"""The verb `tfrl rules`, which makes, verifies, lists and imports rules for tensor graphs."""

from __future__ import annotations

import argparse
import collections
import shlex
import time
from typing import TYPE_CHECKING, Any

from environments import files
from environments.errors import UserError
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import say, show, show_json
from tfrl_systems.experiments.arguments import path_of_file, whole_number
from tfrl_systems.reporting import Terminal

if TYPE_CHECKING:
    from environments.tensor_graphs.rules.language.rule import Rule
    from environments.tensor_graphs.rules.verification.verify import Verdict

_GENERATE = """\
Makes a file of rules: enumerates small expressions, finds equal ones by evaluating them, learns the
conditions under which they are, drops what says nothing new, verifies the rest; and verifies the
written rules. The file that comes with the package was made so; it takes long.

  tfrl rules generate -o rules.json
  tfrl rules generate -o few.json --vocabulary order --vocabulary reshapes --max-size 2
  tfrl rules generate -o rules.json --reuse rules.json
"""
_VERIFY = """\
Verifies each rule of a file anew, over random shapes and attributes: by identity testing modulo
2^31-1, and in floating point; and with integers of every type, which wrap around. Exit status 1 if
one is wrong, or does what the file denies: it changes NaN or infinity, loses digits where large
numbers cancel, or is wrong for some of its types.

  tfrl rules verify
  tfrl rules verify mine.json --instances 5000 --seed 7
  tfrl rules verify --seed 1 --seed 2 --seed 3 --jobs 2 --json
"""
_LIST = """\
Lists rules: what is replaced by what, under which conditions, where the rule comes from, how it was
verified, and for which types. It marks those that may change NaN or infinity, and those that may
lose digits where large numbers cancel (tfrl optimize --strict leaves such rules out).

  tfrl rules list
  tfrl rules list mine.json --json
"""
_MARKS = {
    "may_change_nonfinite": "may change NaN or infinity",
    "may_lose_digits": "may lose digits",
}
_IMPORT = """\
Takes over the rules of TASO's graph_subst.pb that are right, and says why the others are not taken.

  tfrl rules import graph_subst.pb -o taso.json
"""


_INSTANCES = "random shapes and attributes to verify each rule with (default: %(default)s)"


def add_parser(subparsers: Any) -> None:
    """Add `rules` to the verbs."""
    rules = shared.add_verb(
        subparsers, "rules", "make, verify and list rules for tensor graphs",
        "Rules by which tensor graphs are rewritten.",
    )  # fmt: skip
    verbs = rules.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_generate(verbs)
    verify = shared.add_verb(verbs, "verify", "verify rules", _VERIFY)
    _add_file(verify)
    _add_contrib(verify)
    _add_number(verify, "--instances", 1000, "N", _INSTANCES)
    verify.add_argument(
        "--seed",
        type=whole_number(0),
        action="append",
        metavar="K",
        help="of what is random; given several times, each rule is verified with each (default: 0)",
    )
    _add_number(verify, "--jobs", 1, "N", "processes that verify (default: 1)")
    shared.add_json(verify)
    verify.set_defaults(run=run_verify)
    listed = shared.add_verb(verbs, "list", "list rules", _LIST)
    _add_file(listed)
    _add_contrib(listed)
    shared.add_json(listed)
    listed.set_defaults(run=run_list)
    taken = shared.add_verb(verbs, "import", "take over TASO's rules", _IMPORT)
    taken.add_argument("file", type=path_of_file, metavar="FILE.pb", help="TASO's rules")
    taken.add_argument(
        "-o", "--output", type=path_of_file, metavar="FILE", help="where to write those taken"
    )
    _add_number(taken, "--instances", 500, "N", _INSTANCES)
    shared.add_json(taken)
    taken.set_defaults(run=run_import)


def _add_generate(verbs: Any) -> None:
    generate = shared.add_verb(verbs, "generate", "make a file of rules", _GENERATE)
    generate.add_argument(
        "-o", "--output", type=path_of_file, required=True, metavar="FILE", help="the file"
    )
    _add_number(generate, "--seed", 0, "S", "(default: 0)", least=0)
    most = "the most operators in an expression (default: 2 or 3, by vocabulary)"
    _add_number(generate, "--max-size", None, "N", most)
    generate.add_argument(
        "--vocabulary",
        action="append",
        metavar="NAME",
        help="generate rules about this only; can be given several times (default: all, but for "
        "those of TASO's operators: 'taso matrices' and 'taso images')",
    )
    generate.add_argument(
        "--without-written", action="store_true", help="leave out the written rules"
    )
    generate.add_argument(
        "--reuse",
        type=path_of_file,
        metavar="FILE",
        help="take the generated rules of a file that was made before, and the conditions of those "
        "written; verify what it does not have verified",
    )
    _add_number(generate, "--instances", 1000, "N", _INSTANCES)
    times = "how many times each rule is verified, with new instances (default: %(default)s)"
    _add_number(generate, "--seeds", 3, "N", times)
    _add_number(generate, "--jobs", 1, "N", "processes that verify (default: 1)")
    generate.set_defaults(run=run_generate)


def _add_file(parser: argparse.ArgumentParser) -> None:
    usual = "rules (default: those that come with the package)"
    parser.add_argument("file", nargs="?", type=path_of_file, metavar="FILE", help=usual)


def _add_contrib(parser: argparse.ArgumentParser) -> None:
    text = "add the rules of tfrl optimize --contrib, for operators that onnxruntime alone has"
    parser.add_argument("--contrib", action="store_true", help=text)


def _add_number(
    parser: Any, name: str, usual: int | None, metavar: str, text: str, least: int = 1
) -> None:
    parser.add_argument(name, type=whole_number(least), default=usual, metavar=metavar, help=text)


def run_generate(options: argparse.Namespace) -> int:
    """Make a file of rules as the command line says."""
    from environments.tensor_graphs.rules import files as rule_files
    from environments.tensor_graphs.rules import library
    from environments.tensor_graphs.rules.generation.collect import Thoroughness, make_rules
    from environments.tensor_graphs.rules.generation.taso_operators import TASO
    from environments.tensor_graphs.rules.generation.vocabularies import VOCABULARIES

    wanted = options.vocabulary or [vocabulary.name for vocabulary in VOCABULARIES]
    vocabularies = {vocabulary.name: vocabulary for vocabulary in (*VOCABULARIES, *TASO)}
    for name in wanted:
        if name not in vocabularies:
            raise UserError(f"no vocabulary {name!r}; choose among: {', '.join(vocabularies)}")
    files.check_place(options.output)
    began_s = time.monotonic()
    # The ledger tells of all written rules, a file only of those that are used by default.
    is_own = options.output.resolve() == rule_files.PATH.resolve()
    file = make_rules(
        () if options.without_written else library.all_rules(is_own),
        options.seed,
        options.max_size,
        Thoroughness(options.instances, tuple(range(1, options.seeds + 1)), options.jobs),
        [vocabularies[name] for name in wanted],
        rule_files.read(options.reuse, is_own) if options.reuse else None,
        _command(options),
        lambda text: say(f"{time.monotonic() - began_s:5.0f} s  {text}"),
    )
    rule_files.write(file, options.output)
    show(f"{options.output}: {len(file.rules)} rules")
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """Verify the rules of a file; return 1 if one is wrong, else 0."""
    from environments.tensor_graphs.rules import files as rule_files
    from environments.tensor_graphs.rules.verification.verify import verify_all

    file = rule_files.read(options.file, options.contrib)
    seeds = tuple(dict.fromkeys(options.seed or [0]))
    with Terminal() as progress:
        advance = progress.task("verifying", len(file.rules))
        verdicts = verify_all(
            file.rules, options.instances, seeds, options.jobs, lambda: advance(1)
        )
    wrong = {name: verdict.how for name, verdict in verdicts.items() if not verdict.is_right}
    for rule in file.rules:
        if rule.name not in wrong and (denied := _denied(rule, verdicts[rule.name])):
            wrong[rule.name] = denied
    if options.json:
        entries = [
            {
                "name": name,
                "right": name not in wrong,
                "how": verdict.how,
                "instances": verdict.num_instances,
                "may_change_nonfinite": bool(verdict.nonfinite_change),
                "may_lose_digits": bool(verdict.digit_loss),
                "types": list(verdict.types),
            }
            for name, verdict in verdicts.items()
        ]
        show_json({"rules": entries, "instances": options.instances, "seeds": list(seeds)})
    else:
        right = len(verdicts) - len(wrong)
        count = sum(verdict.num_instances for verdict in verdicts.values())
        show(f"{right} of {len(verdicts)} rules are right, in {count:,} instances")
    for name, how in wrong.items():
        say(f"{name}: {how}")
    return 1 if wrong else 0


def run_list(options: argparse.Namespace) -> int:
    """List the rules of a file."""
    from environments.tensor_graphs.rules import files as rule_files

    file = rule_files.read(options.file, options.contrib)
    if options.json:
        entries = [
            rule.as_dict()
            | {"origin": file.origins[rule.name], "instances": file.instances.get(rule.name, 0)}
            for rule in file.rules
        ]
        show_json({"rules": entries, "made": file.provenance})
        return 0
    marks: collections.Counter[str] = collections.Counter()
    for rule in file.rules:
        show(f"{rule}\n    {file.origins[rule.name]}; {rule.verified_by or 'not verified'}")
        show(f"    types: {', '.join(rule.types)}")
        for name, mark in _MARKS.items():
            if getattr(rule, name):
                show(f"    {mark}")
                marks[mark] += 1
    counts = collections.Counter(file.origins[rule.name] for rule in file.rules)
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(counts.items()))
    marked = ", ".join(f"{marks[mark]} {mark}" for mark in _MARKS.values())
    show(f"{len(file.rules)} rules: {origins}; {marked}")
    return 0


def _denied(rule: Rule, verdict: Verdict) -> str:
    """Return what a rule does although its file denies it; "" if nothing."""
    if verdict.nonfinite_change and not rule.may_change_nonfinite:
        return f"changes NaN or infinity, which its file denies: {verdict.nonfinite_change}"
    if verdict.digit_loss and not rule.may_lose_digits:
        return f"loses digits, which its file denies: {verdict.digit_loss}"
    wrong = [group for group in rule.types if group not in verdict.types]
    return f"is not right for these of its types: {', '.join(wrong)}" if wrong else ""


def run_import(options: argparse.Namespace) -> int:
    """Import the rules of a TASO file that are right."""
    from environments.tensor_graphs.rules import files as rule_files
    from environments.tensor_graphs.rules.taso.file import read_taso_file
    from environments.tensor_graphs.rules.taso.importing import import_taso

    if options.output is not None:
        files.check_place(options.output)
    rules = read_taso_file(options.file)
    with Terminal() as progress:
        advance = progress.task("verifying", len(rules))
        taken = import_taso(rules, options.instances, progress_fn=lambda: advance(1))
    if options.output is not None:
        origins = {rule.name: rule_files.IMPORTED for rule in taken.accepted}
        record = {"command": _command(options), "rejected": taken.rejected}
        rule_files.write(rule_files.RuleFile(taken.accepted, origins, record), options.output)
    if options.json:
        rejected = [{"rule": name, "reason": why} for name, why in taken.rejected.items()]
        show_json({"accepted": len(taken.accepted), "rejected": rejected})
        return 0
    for name, why in taken.rejected.items():
        say(f"{name} is not taken: {why}")
    show(f"{len(taken.accepted)} rules taken, {len(taken.rejected)} not")
    return 0


def _command(options: argparse.Namespace) -> str:
    """Return the command that makes the same file, as a user would type it."""
    if options.run is run_import:
        return shlex.join(["tfrl", "rules", "import", options.file.name])
    words = ["tfrl", "rules", "generate", "-o", options.output.name, "--seed", str(options.seed)]
    if options.max_size is not None:
        words += ["--max-size", str(options.max_size)]
    for name in options.vocabulary or ():
        words += ["--vocabulary", name]
    words += ["--without-written"] * options.without_written
    return shlex.join(
        [*words, "--instances", str(options.instances), "--seeds", str(options.seeds)]
    )
