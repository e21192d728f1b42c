"""Which tests belong to a file."""

from __future__ import annotations

import pathlib

import pytest

from tools import changed_tests

FILES = {
    "tests/environments/room/test_door.py": "from tests.environments import helper\n",
    "tests/environments/room/test_window.py": "",
    "tests/environments/test_house.py": "import tests.environments.helper\n",
    "tests/environments/helper.py": "",
    "tests/environments/room/conftest.py": "",
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("notebooks/inlining.ipynb", ["../test_notebooks.py"]),
        ("environments/room/door.py", ["room/test_door.py"]),
        # None of its name: those of its folder, or of the nearest one above that has some.
        ("environments/room/roof.py", ["room/test_door.py", "room/test_window.py"]),
        ("environments/garden/pond/fish.py", ["test_house.py"]),
        ("tests/environments/room/test_door.py", ["room/test_door.py"]),
        ("tests/environments/room/test_gone.py", []),
        ("tests/environments/room/conftest.py", ["room/test_door.py", "room/test_window.py"]),
        ("tests/environments/helper.py", ["room/test_door.py", "test_house.py"]),
        ("README.md", []),
    ],
)
def test_the_tests_of_a_file(checkout, changed, tests):
    chosen = changed_tests.tests_of(pathlib.PurePath(changed), checkout)
    places = [checkout / "tests" / "environments" / name for name in tests]
    assert sorted(path.resolve() for path in chosen) == [place.resolve() for place in places]
