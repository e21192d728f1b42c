"""Changes of images, worked by hand."""

from __future__ import annotations

import pytest

from tools.studies.image_sizes import changes_of

PLAIN = {"text_bytes": 100, "unwind_bytes": 0, "rodata_bytes": 50, "file_bytes": 200}


def test_images_are_added_up():
    """Of 200 bytes of code 30 go; there were no tables, so nothing is said of them."""
    smaller, larger = {**PLAIN, "text_bytes": 60}, {**PLAIN, "text_bytes": 110}
    changes = changes_of([(smaller, PLAIN), (larger, PLAIN)])
    assert changes["code"] == pytest.approx(-15) and changes["loaded"] == pytest.approx(-10)
    assert changes["tables"] is None and changes["file"] == 0
