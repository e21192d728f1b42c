"""Sources that no compiler should begin to read."""

from __future__ import annotations

from environments.inlining.corpus.building import build_corpus


def test_a_source_of_terabytes_is_named_and_not_begun(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "small.c").write_text("int f(int x) { return x; }\n")
    with (sources / "huge.c").open("wb") as file:
        file.truncate(1 << 42)
    report = build_corpus([sources], tmp_path / "out")
    assert report.modules == 1
    assert [failure.error for failure in report.not_compiled] == [
        "expected a source of at most 268,435,456 bytes, found 4,398,046,511,104"
    ]
