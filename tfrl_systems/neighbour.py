"""Check that our package `environments` is not hidden by a user's own module or folder.

Python takes the first one on sys.path, which begins with the directory of the script, or with the
current one.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import TracebackType


class HiddenPackageError(ImportError):
    """Raised if another package has the name of ours; the message is one line."""


def check(name: str) -> None:
    """Check that the package of this name is the one beside `tfrl_systems`, without importing it.

    Raises:
      HiddenPackageError: it is another one. A program that this ends shows the message alone.
    """
    ours = pathlib.Path(__file__).parent.with_name(name)
    place = _place_of(name)
    if place in ("", str(ours)):  # that there is none, its import says
        return
    sys.excepthook = _show
    raise HiddenPackageError(
        f"tfrl_systems: expected its own package {name} in {ours}, found {place}, which hides it; "
        "rename that, or start Python where it is not on sys.path"
    )


def _place_of(name: str) -> str:
    """Return the folder of a package or the file of a module; "" if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand
        return str(getattr(sys.modules[name], "__file__", "a module without a file"))
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or ())
    return str(folders[0] if folders else spec.origin)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, HiddenPackageError):
        sys.stderr.write(f"{error}\n")
    else:
        sys.__excepthook__(kind, error, trace)
