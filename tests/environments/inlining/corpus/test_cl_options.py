"""Options in the way of Microsoft's compiler."""

from __future__ import annotations

import pytest

from environments.inlining.corpus.cl_options import gnu_options


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("/nologo /c /O2 /W4 /EHsc /Fox.obj /Zi x.cpp", "x.cpp"),
        ("/I inc /Iother /DX /D Y=1 /UZ /FIz.h", "-I inc -I other -D X -D Y=1 -U Z -include z.h"),
        ("-Iinc -imsvc sdk /external:I third", "-I inc -isystem sdk -isystem third"),
        (
            "/std:c++17 /std:c++latest /std:c11 /GR- /J",
            "-std=c++17 -std=c++23 -std=c11 -fno-rtti -funsigned-char",
        ),
        ("/TP -- /Data/x.c", "-x c++ -- /Data/x.c"),
        (
            "/clang:-fno-builtin -fms-extensions --target=x -o x.obj",
            "-fno-builtin -fms-extensions --target=x",
        ),
        ("-Xclang -std=c++20 /I", "-Xclang -std=c++20"),
    ],
)
def test_options_in_the_way_of_microsofts_compiler(words, options):
    assert " ".join(gnu_options(words.split())) == options
