"""A compiler that counts what it compiles."""

from __future__ import annotations

import pytest

from environments.inlining.compilers.embedded import EmbeddedLlvm


class Counting(EmbeddedLlvm):
    """Counts its compiles."""

    num_compiles = 0

    def compile(self, module):
        self.num_compiles += 1
        return super().compile(module)


@pytest.fixture(scope="module")
def counting():
    compiler = Counting(timeout_s=60)
    assert compiler.announced
    yield compiler
    compiler.close()
