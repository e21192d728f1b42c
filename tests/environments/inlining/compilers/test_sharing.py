"""Compilers that environments share are closed where nobody else can use them."""

from __future__ import annotations

from environments.inlining.compilers.sharing import SharedCompilers


class Closable:
    """A compiler as far as those who share it need it."""

    is_closed = False

    def fork(self):
        return Closable()

    def close(self):
        self.is_closed = True


def test_idle_compilers_are_closed_where_one_user_is_left():
    first = Closable()
    shared = SharedCompilers(first)
    for _ in range(3):
        shared.join()
    own, second, third = (shared.take() for _ in range(3))
    assert own is first and len({own, second, third}) == 3
    shared.give_back(second)
    shared.leave()
    assert not second.is_closed  # one of the two who are left may want it
    assert shared.take() is second
    shared.give_back(second)
    shared.give_back(third)
    shared.leave()
    assert second.is_closed and third.is_closed and not own.is_closed
