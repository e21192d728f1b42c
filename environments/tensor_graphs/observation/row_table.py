"""A table of rows by key: rows change one by one, and are read all at once."""

from __future__ import annotations

import numpy as np

_FREE = np.iinfo(np.int64).max


class RowTable:
    """A row of numbers for each key. A row keeps its place until its key is dropped.

    Attributes:
      values: float32 [capacity, width], the features in each place.
      work: float64 [capacity, 4], four numbers that need more precision than float32 has.
      ends: int32 [capacity, 2], two node numbers, used for the ends of an edge.
    """

    __slots__ = ("_free", "_keys", "_order", "_places", "ends", "values", "work")

    def __init__(self, width: int, capacity: int = 64) -> None:
        """Make an empty table; it grows when it is full."""
        self.values = np.zeros((capacity, width), np.float32)
        self.work = np.zeros((capacity, 4))
        self.ends = np.zeros((capacity, 2), np.int32)
        self._keys: np.ndarray = np.full(capacity, _FREE)
        self._places: dict[int, int] = {}
        self._free = list(range(capacity - 1, -1, -1))
        self._order: np.ndarray | None = None

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._places)

    def __contains__(self, key: int) -> bool:
        """Whether a key has a row."""
        return key in self._places

    def __getitem__(self, key: int) -> int:
        """Return the place of a key; it must be in the table."""
        return self._places[key]

    @property
    def capacity(self) -> int:
        """The number of places, used and free."""
        return len(self._keys)

    def put(self, key: int) -> int:
        """Return the place of a key; give it a free place if it has none."""
        place = self._places.get(key)
        if place is None:
            if not self._free:
                self._grow()
            place = self._places[key] = self._free.pop()
            self._keys[place] = key
            self._order = None
        return place

    def drop(self, key: int) -> None:
        """Free the place of a key, if it has one."""
        place = self._places.pop(key, None)
        if place is not None:
            self._keys[place] = _FREE
            self._free.append(place)
            self._order = None

    def order(self) -> np.ndarray:
        """Return the used places, sorted by key."""
        if self._order is None:
            self._order = np.argsort(self._keys, kind="stable")[: len(self._places)]
        return self._order

    def keys(self) -> np.ndarray:
        """Return the keys in ascending order."""
        return self._keys[self.order()]

    def copy(self) -> RowTable:
        """Return an independent copy."""
        table = RowTable.__new__(RowTable)
        table.values, table.work = self.values.copy(), self.work.copy()
        table.ends, table._keys = self.ends.copy(), self._keys.copy()
        table._places, table._free = dict(self._places), list(self._free)
        table._order = self._order
        return table

    def _grow(self) -> None:
        capacity = self.capacity
        self.values = np.concatenate((self.values, np.zeros_like(self.values)))
        self.work = np.concatenate((self.work, np.zeros_like(self.work)))
        self.ends = np.concatenate((self.ends, np.zeros_like(self.ends)))
        self._keys = np.concatenate((self._keys, np.full(capacity, _FREE)))
        self._free += range(2 * capacity - 1, capacity - 1, -1)
