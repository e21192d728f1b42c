"""What the README and the words of CONTRIBUTING name is there."""

from __future__ import annotations

import pkgutil
import re

from tests.checkout import ROOT

LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
NAME = re.compile(r"\b((?:tfrl_systems|environments)(?:\.\w+)+)")


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_and_names_of_the_readme_lead_somewhere():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    links, names = LINK.findall(page), NAME.findall(page)
    for target, anchor in links:
        path = ROOT / target
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"
    assert min(len(links), len(names)) > 1
    for name in names:
        pkgutil.resolve_name(name)


def test_words_are_where_the_table_says():
    """Each part of the table names a folder, and each row a place below it."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Words")[1]
    folder, num_places = None, 0
    for line in re.findall(r"^\| .* \|$", table, re.MULTILINE):
        where = re.findall("`([^`]+)`", line.rsplit(" | ", 1)[1])
        if line.startswith("| **"):
            folder = ROOT / where[0]
            continue
        for place in where:
            assert (folder / place).exists(), f"{folder.name}: {line}"
            num_places += 1
    assert num_places > 50
