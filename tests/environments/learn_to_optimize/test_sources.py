"""What the digest of a user's function covers."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


PARTS = {
    "cost.py": (
        "import near\ndef cost(p):\n    from pack import late\n    import space.inner\n"
        "    return near.add(p)"
    ),
    "near.py": "def add(p):\n    return p[:, 0]",
    "pack/__init__.py": "",
    "pack/late.py": "from . import deep\n",
    "pack/deep.py": "",
    "space/inner.py": "",
    "far.py": "",
}


@pytest.mark.parametrize("part", PARTS)
def test_the_digest_covers_what_the_module_imports_from_beside_it(tmp_path, part):
    """Whatever is imported, wherever in the text; a file that nobody imports is not covered."""

    def digest(directory: pathlib.Path) -> str:
        code = (
            "import sys; sys.path.insert(0, '.')\n"
            "from environments.learn_to_optimize.functions import make_objective\n"
            "print(make_objective('cost:cost').source_sha256)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=directory,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    digests = []
    for place, more in (("a", ""), ("b", ""), ("c", "\n# changed\n")):
        for name, text in PARTS.items():
            file = tmp_path / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + more * (name == part))
        digests.append(digest(tmp_path / place))
    assert digests[0] == digests[1]
    assert (digests[2] == digests[0]) == (part == "far.py")
