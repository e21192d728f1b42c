"""Make a trained policy the one that comes with the installation.

    python -m tools.ship_policy runs/shipped --ladder runs/ladder --command "tfrl train …"
    python -m tools.ship_policy runs/walker --graphs runs/graphs --command "tfrl train …"

takes `runs/shipped/policy` for inlining, and from the study `ladder` what it saves in projects that
it was not trained on; or `runs/walker/policy` for tensor_graphs, and from the study `graphs` what
it saves of the cost of models. Both go into the system's room `shipped`, with the command that
trained it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
from collections.abc import Iterable

from environments.errors import UserError
from environments.files import replace
from tfrl_systems.policies.policy_files import ARRAYS_NAME, JSON_NAME
from tfrl_systems.systems.inlining import shipped
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.tensor_graphs import shipped as of_graphs
from tools import running
from tools.studies import learning
from tools.studies.ladder import changes
from tools.studies.runner import flat
from tools.studies.study import Record

_FIGURES = ("code", "tables", "rodata", "loaded", "file", "cpu", "instructions")


def _records_in(directory: pathlib.Path) -> list[Record]:
    """Return all records that a study has kept."""
    paths = sorted(directory.glob("records/*.json"))
    return [flat(json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def ladder_of(directory: pathlib.Path, policy: pathlib.Path) -> list[dict[str, object]]:
    """Return what a policy changes at each rung, in percent, as the study `ladder` measured it.

    Raises:
      UserError: the study was not made with this policy.
    """
    records, fingerprint = _records_in(directory), load_policy(str(policy)).fingerprint
    rows = [
        {name: row[name] for name in ("rung", "project", "compiler", *_FIGURES)}
        for row in changes(records)
        if row["policy_sha256"] == fingerprint and not row["image"]
    ]
    if not rows:
        raise UserError(
            f"{directory}: expected records of the study ladder with {policy}, found none; "
            f"run python -m tools.studies ladder --policy {policy} -o {directory}"
        )
    return rows


def graphs_of(directory: pathlib.Path, policy: pathlib.Path) -> list[dict[str, object]]:
    """Return what a policy and searches change of each model's cost, in percent, by seconds.

    Raises:
      UserError: the study `graphs` was not made with this policy.
    """
    records, digest = _records_in(directory), learning.digest_of(str(policy))
    if not any(record.get("policy_sha256") == digest for record in records):
        raise UserError(
            f"{directory}: expected records of the study graphs with {policy}, found none; "
            f"run python -m tools.studies graphs --policy {policy} --policy regions -o {directory}"
        )
    return [
        {
            "model": pathlib.PurePath(play["model"]).name.removesuffix(".onnx"),
            # What the policy leads is named regions:DIR.
            "policy": record["policy"].replace(str(policy), of_graphs.NAME),
            **{name: round(play[name], 3) for name in ("limit_s", "percent", "seconds")},
        }
        for record in records
        if record.get("policy_sha256") in (digest, "")
        for play in record["plays"]
    ]


def run(options: argparse.Namespace) -> None:
    """Copy the policy, and write how it was made."""
    policy = options.workdir / "policy"
    if options.ladder is not None:
        place, figures = shipped.DIRECTORY, {"ladder": ladder_of(options.ladder, policy)}
    else:
        place, figures = of_graphs.DIRECTORY, {"graphs": graphs_of(options.graphs, policy)}
    for name in (JSON_NAME, ARRAYS_NAME):
        shutil.copyfile(policy / name, place / name)
    made_by = {"command": options.command, **figures}
    replace(place / "made_by.json", json.dumps(made_by, indent=1).encode() + b"\n")


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the tool; report errors of the user in one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workdir", type=pathlib.Path, help="the run that trained it")
    study = parser.add_mutually_exclusive_group(required=True)
    study.add_argument("--ladder", type=pathlib.Path, help="the directory of that study")
    study.add_argument("--graphs", type=pathlib.Path, help="the directory of that study")
    parser.add_argument("--command", required=True, help="the command that trained it")
    return running.exit_status(run, parser.parse_args(arguments and list(arguments)))


if __name__ == "__main__":
    sys.exit(main())
