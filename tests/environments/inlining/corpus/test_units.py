"""The top of a project."""

from __future__ import annotations

from environments.inlining.corpus.units import find_project_root


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def builds(*directories):
    return [directory / "CMakeLists.txt" for directory in directories]


def test_the_top_of_a_project(tmp_path):
    repository = tmp_path / "repository"
    nested = repository / "third_party/zlib/contrib"
    touch(repository / ".git", *builds(tmp_path, repository, nested.parent, nested))
    assert find_project_root(nested) == nested.parent  # third_party has no build file
    assert find_project_root(repository / "third_party") == repository
    assert find_project_root(repository / "src/deep") == repository  # not tmp_path
