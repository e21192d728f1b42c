"""Pin the versions installed in two environments, by writing the files of tools/constraints/.

    python tools/freeze_constraints.py .venv .venv-colab

common.txt gets the versions that both stacks share, so that each is written only once. To change a
version, edit its line, run `bash tools/check.sh` and `bash tools/check.sh --stack colab` until they
pass, then run this tool to pin the dependencies that changed with it. Neither environment may hold
packages that the project does not need.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess

CONSTRAINTS = pathlib.Path(__file__).parent / "constraints"
# Not pinned: the project itself, and what `python -m venv` installs.
UNPINNED = {"pip", "setuptools", "tfrl-systems"}

COMMON_HEADER = "# Versions that both stacks share. Written by tools/freeze_constraints.py.\n"
STACK_HEADER = "# {about}. Written by tools/freeze_constraints.py.\n-c common.txt\n"


def installed(environment: pathlib.Path) -> dict[str, str]:
    """Return the version of each package in a virtual environment, by normalised name."""
    python = environment / "bin" / "python"
    listing = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "list", "--format=json"],
        check=True,
        capture_output=True,
    ).stdout
    versions = {
        re.sub(r"[-_.]+", "-", entry["name"]).lower(): entry["version"]
        for entry in json.loads(listing)
    }
    return {name: version for name, version in versions.items() if name not in UNPINNED}


def write(name: str, header: str, versions: dict[str, str]) -> None:
    lines = [f"{package}=={version}\n" for package, version in sorted(versions.items())]
    (CONSTRAINTS / name).write_text(header + "".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("default", type=pathlib.Path, help="environment of the default stack")
    parser.add_argument("colab", type=pathlib.Path, help="environment of the colab stack")
    arguments = parser.parse_args()
    default = installed(arguments.default)
    colab = installed(arguments.colab)
    common = {name: version for name, version in default.items() if colab.get(name) == version}
    write("common.txt", COMMON_HEADER, common)
    for name, about, versions in (
        ("default.txt", "Python 3.11, TensorFlow 2.15", default),
        ("colab.txt", "Python 3.13, TensorFlow 2.20", colab),
    ):
        own = {package: version for package, version in versions.items() if package not in common}
        write(name, STACK_HEADER.format(about=about), own)


if __name__ == "__main__":
    main()
