"""Rows by key, kept up to date one by one and read all at once."""

from __future__ import annotations

import numpy as np

_FREE = np.iinfo(np.int64).max


class RowTable:
    """Some columns for each key. A row has one place for as long as its key is there.

    Attributes:
      values: float32 [capacity, width], by place.
      work: float64 [capacity, 4], by place, exact where float32 is not.
      ends: int32 [capacity, 2], by place.
    """

    __slots__ = ("_free", "_keys", "_order", "_places", "ends", "values", "work")

    def __init__(self, width: int, capacity: int = 64) -> None:
        """An empty table; it grows as it has to."""
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
        """The place of a key that is there."""
        return self._places[key]

    @property
    def capacity(self) -> int:
        """Places that there are."""
        return len(self._keys)

    def put(self, key: int) -> int:
        """The place of a key, a new one if the key was not there."""
        place = self._places.get(key)
        if place is None:
            if not self._free:
                self._grow()
            place = self._places[key] = self._free.pop()
            self._keys[place] = key
            self._order = None
        return place

    def drop(self, key: int) -> None:
        """Frees the place of a key, if it is there."""
        place = self._places.pop(key, None)
        if place is not None:
            self._keys[place] = _FREE
            self._free.append(place)
            self._order = None

    def order(self) -> np.ndarray:
        """The places, ascending by key."""
        if self._order is None:
            self._order = np.argsort(self._keys, kind="stable")[: len(self._places)]
        return self._order

    def keys(self) -> np.ndarray:
        """The keys, ascending."""
        return self._keys[self.order()]

    def copy(self) -> RowTable:
        """Another table with the same rows."""
        other = RowTable.__new__(RowTable)
        other.values, other.work = self.values.copy(), self.work.copy()
        other.ends, other._keys = self.ends.copy(), self._keys.copy()
        other._places, other._free = dict(self._places), list(self._free)
        other._order = self._order
        return other

    def _grow(self) -> None:
        capacity = self.capacity
        self.values = np.concatenate((self.values, np.zeros_like(self.values)))
        self.work = np.concatenate((self.work, np.zeros_like(self.work)))
        self.ends = np.concatenate((self.ends, np.zeros_like(self.ends)))
        self._keys = np.concatenate((self._keys, np.full(capacity, _FREE)))
        self._free += range(2 * capacity - 1, capacity - 1, -1)
