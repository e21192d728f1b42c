"""What can be seen of an episode beside its observations, by name and on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from environments.errors import UserError


class Views(Mapping[str, Any]):
    """A mapping whose values are computed when they are asked for.

    Args:
      functions: what computes each value, by name.
    """

    def __init__(self, functions: Mapping[str, Callable[[], Any]]) -> None:
        self._functions = functions

    def __getitem__(self, name: str) -> Any:
        """Return the value of a name.

        Raises:
          UserError: there is none of that name.
        """
        if name not in self._functions:
            raise UserError(
                f"observation: expected one of {', '.join(self._functions)}, found {name!r}; "
                "correct the name"
            )
        return self._functions[name]()

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._functions)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._functions)

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a name; nothing is computed."""
        return name in self._functions
