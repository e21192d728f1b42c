"""What the README names is there."""

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


def test_links_of_the_readme_lead_somewhere():
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    for target, anchor in links:
        path = ROOT / target
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"
    assert len(links) > 1


def test_names_of_the_packages_in_the_readme_exist():
    names = NAME.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(names) > 1
    for name in names:
        pkgutil.resolve_name(name)
