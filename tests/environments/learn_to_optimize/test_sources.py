"""What the digest of a user's function covers."""

from __future__ import annotations

import types

import pytest

from environments.learn_to_optimize import sources

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


def test_it_covers_what_the_module_imports_from_beside_it(tmp_path):
    """Whatever is imported, wherever in the text; a file that nobody imports is not covered."""

    def digest(place: str, changed: str = "") -> str | None:
        for name, text in PARTS.items():
            file = tmp_path / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n# changed\n" * (name == changed))
        module = types.ModuleType("cost")
        module.__file__ = str(tmp_path / place / "cost.py")
        return sources.digest(print, module)

    first = digest("a")
    assert first is not None and digest("b") == first
    for part in PARTS:
        assert (digest("a", part) == first) == (part == "far.py"), part


SCRIPT = """
OFFSET = {offset}

class Plant:
    gain = 2
    def cost(self, p):
        return helper(p) + OFFSET

def helper(p):
    return {gain} * p[:, 0]

plant = Plant()

def cost(p):
    return [helper(row)[0] + OFFSET for row in p]
"""


@pytest.mark.parametrize("get", [lambda names: names["cost"], lambda names: names["plant"].cost])
def test_it_covers_each_part_of_a_script_that_the_function_uses(get):
    def digest(offset: int, gain: int) -> str | None:
        names = {"__name__": sources.MAIN}
        exec(SCRIPT.format(offset=offset, gain=gain), names)
        return sources.digest(get(names), types.ModuleType(sources.MAIN))

    first = digest(1, 3)
    assert first is not None and digest(1, 3) == first
    assert len({first, digest(2, 3), digest(1, 4)}) == 3
