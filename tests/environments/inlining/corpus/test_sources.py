"""Finding what to compile in compilation databases and source trees."""

from __future__ import annotations

import pytest

from environments.errors import UserError
from environments.inlining.corpus.sources import gather_units
from environments.inlining.corpus.units import BitcodeUnit, find_project_root
from tests.environments.inlining.corpus.test_compile_commands import write_database


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def builds(*directories):
    return [directory / "CMakeLists.txt" for directory in directories]


def test_compile_commands_in_both_forms(tmp_path):
    entries = [
        {
            "directory": str(tmp_path / "build"),
            "file": "../src/a.c",
            "command": "ccache gcc -O2 -DTEXT='two words' -I../include -o a.o -c ../src/a.c",
        },
        {
            "directory": "build",
            "file": str(tmp_path / "src/deep/b.cc"),
            "arguments": ["clang++", "-std=c++20", "-c", str(tmp_path / "src/deep/b.cc")],
        },
        {"directory": "build", "file": "../src/start.S", "command": "cc -c ../src/start.S"},
    ]
    a, b = gather_units([write_database(tmp_path, entries)]).units
    assert (a.name, a.source, a.language) == ("src/a.c", "../src/a.c", "c")
    assert a.argument_sets == (("-DTEXT=two words", "-I../include"),)
    assert (b.name, b.source, b.language) == ("src/deep/b.cc", "../src/deep/b.cc", "c++")
    assert b.argument_sets == (("-std=c++20",),)
    assert a.directory == b.directory == tmp_path / "build"
    assert a.root == tmp_path / "src"


@pytest.mark.parametrize("text", ["{", "{}", "[1]", "[]"])
def test_damaged_databases(tmp_path, text):
    path = tmp_path / "compile_commands.json"
    path.write_text(text)
    with pytest.raises(UserError, match="compile_commands.json"):
        gather_units([path])


def test_tree_includes_what_lies_near_first(tmp_path):
    names = ("include/p/api.h", "src/impl.h", "src/core/x.cc", "third/lib/l.h", ".git/y.c")
    touch(*(tmp_path / "p" / name for name in names))
    (unit,) = gather_units([tmp_path / "p"]).units
    assert unit.name == "p/src/core/x.cc"
    near, every, own = unit.argument_sets
    assert near == ("-std=c++17", "-Isrc/core", "-Isrc", "-I.", "-Iinclude")
    assert set(every) - set(near) == {"-Iinclude/p", "-Ithird/lib", "-Ithird"}
    assert own == ("-std=c++17", "-Isrc/core")


def test_sources_of_other_languages_in_a_tree_are_counted(tmp_path):
    touch(*(tmp_path / name for name in ("a.c", "B.CPP", "b.S", "deep/c.S", "d.cu", "README")))
    gathered = gather_units([tmp_path])
    assert [unit.language for unit in gathered.units] == ["c++", "c"]
    assert gathered.skipped == {".S": 2, ".cu": 1}


def test_bitcode_files_and_directories(tmp_path):
    (tmp_path / "bits/deep").mkdir(parents=True)
    (tmp_path / "bits/deep/a.bc").write_bytes(b"BC\xc0\xde")
    (tmp_path / "bits/b.bc").write_bytes(b"\xde\xc0\x17\x0b")
    units = gather_units([tmp_path / "bits", tmp_path / "bits/b.bc"]).units
    assert [unit.name for unit in units] == ["b", "bits/b", "bits/deep/a"]
    assert all(isinstance(unit, BitcodeUnit) for unit in units)


def test_sources_of_no_use(tmp_path):
    (tmp_path / "notes.txt").write_text("no bitcode")
    for source, message in (
        (tmp_path / "missing", "no such file"),
        (tmp_path / "notes.txt", "'BC'"),
        (tmp_path, "found none"),
    ):
        with pytest.raises(UserError, match=message):
            gather_units([source])


def test_a_project_is_named_after_its_top_directory(tmp_path):
    top = tmp_path / "jsoncpp"
    library = top / "src/lib_json"
    touch(library / "json_value.cpp", tmp_path / "bare/src/a.c", *builds(top, top / "src", library))
    names = {unit.name for unit in gather_units([library, tmp_path / "bare/src"]).units}
    assert names == {"jsoncpp/src/lib_json/json_value.cpp", "src/a.c"}
    (named,) = gather_units([library], project="mine").units
    assert named.name == "mine/json_value.cpp"
    # Names say where a module belongs; what is compiled stays the same.
    assert (named.source, named.root) == ("json_value.cpp", library)


def test_the_top_of_a_project(tmp_path):
    repository = tmp_path / "repository"
    nested = repository / "third_party/zlib/contrib"
    touch(repository / ".git", *builds(tmp_path, repository, nested.parent, nested))
    assert find_project_root(nested) == nested.parent  # third_party has no build file
    assert find_project_root(repository / "third_party") == repository
    assert find_project_root(repository / "src/deep") == repository  # not tmp_path


def test_trees_of_one_project_side_by_side_are_projects(tmp_path):
    folders = [tmp_path / "checkout" / name for name in ("words", "shapes")]
    touch(*builds(tmp_path / "checkout"), *(folder / "a.c" for folder in folders))
    assert [unit.name for unit in gather_units(folders).units] == ["shapes/a.c", "words/a.c"]


def test_cmake_tells_the_top_of_the_sources(tmp_path):
    """With the build beside the sources, as CMake is mostly used."""
    source = tmp_path / "checkout/library/lib.c"
    touch(source, *builds(source.parent))
    build = tmp_path / "build"
    build.mkdir()
    cache = f"//...\nCMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}/checkout\n"
    (build / "CMakeCache.txt").write_text(cache)
    write_database(build, [{"directory": ".", "file": str(source), "command": f"cc {source}"}])
    (unit,) = gather_units([build]).units
    assert unit.name == "checkout/library/lib.c"
    (named,) = gather_units([build], project="mine").units
    assert named.name == "mine/library/lib.c"


def test_names_are_made_safe(tmp_path):
    touch(tmp_path / "odd $(name)\n" / "-o.c")
    (unit,) = gather_units([tmp_path / "odd $(name)\n"]).units
    assert unit.name == "odd___name__/-o.c"
