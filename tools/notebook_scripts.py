"""Writes the cells of each notebook as a script, for the check of types.

Only CI runs the notebooks whole. Of what they use, mypy misses nothing that is renamed or gone.
"""

from __future__ import annotations

import argparse
import json
import pathlib

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# Cells end with calls whose arguments are a dictionary's, and name variables anew: all of it plain
# in a notebook.
_HEADER = '# mypy: disable-error-code="name-defined,arg-type,assignment,var-annotated"\n'


def python_of(source: str) -> str:
    """Return the source of a cell, its magic commands turned into Python."""
    from IPython.core import inputtransformer2

    return inputtransformer2.TransformerManager().transform_cell(source)


def script_of(notebook: pathlib.Path) -> str:
    """Return the code cells of a notebook as Python."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return _HEADER + "\n".join(map(python_of, code))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path, help="where the scripts are written")
    directory = parser.parse_args().directory
    for notebook in NOTEBOOKS:
        script = directory / f"{notebook.stem}_notebook.py"
        script.write_text(script_of(notebook), encoding="utf-8")


if __name__ == "__main__":
    main()
