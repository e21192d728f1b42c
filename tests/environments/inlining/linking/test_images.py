"""Images that objects are linked into."""

from __future__ import annotations

import pytest

from environments.errors import UserError
from environments.inlining.collection.tasks import WriteObject
from environments.inlining.heuristics import Default
from environments.inlining.linking.images import link, read_image_size
from tests.environments.inlining.linking.conftest import one_of_two, sizes_of, write_project
from tests.environments.inlining.small_modules import write_module

PROGRAM = """
declare void @one()
define i32 @main() minsize optsize {
  call void @one()
  ret i32 0
}
"""


def test_a_library_is_linked_whole_and_copies_are_merged(compiler, project, tmp_path):
    paths = [WriteObject(Default(), tmp_path).run(compiler, module) for module in project]
    both, alone = link(paths, tmp_path / "both"), link(paths[:1], tmp_path / "alone")
    (_, first), (_, two) = sizes_of(compiler, project)
    shared_bytes = int(first.groups["bytes"][0])
    assert alone.text_bytes >= first.exec_bytes
    # The second object adds all but its copy of the function, up to alignment.
    loaded = [image.text_bytes + image.unwind_bytes + image.rodata_bytes for image in (alone, both)]
    added = loaded[1] - loaded[0]
    assert abs(added - (two.text_bytes - shared_bytes)) <= 32
    assert both.file_bytes == (tmp_path / "both").stat().st_size


def test_what_other_modules_define_may_be_missing_and_hidden(compiler, tmp_path):
    ir = one_of_two(0, "one").replace("declare void @sink", "declare hidden void @sink")
    path = WriteObject(Default(), tmp_path).run(compiler, write_module(tmp_path, "one", ir))
    assert link([path], tmp_path / "image").text_bytes > 0


def test_a_program_is_linked_from_its_main(compiler, project, tmp_path):
    (program,) = write_project(tmp_path, {"program": PROGRAM})
    write = WriteObject(Default(), tmp_path)
    paths = [write.run(compiler, module) for module in (*project, program)]
    whole, called = link(paths, tmp_path / "image"), link([paths[0], paths[2]], tmp_path / "used")
    # Nothing calls @two; an object without sections of its own for functions goes as a whole.
    assert whole.text_bytes == called.text_bytes


def test_what_cannot_be_linked_is_one_line(tmp_path):
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(b"\x7fELF\x02\x01" + bytes(100))
    with pytest.raises(UserError, match="image: expected objects that can be linked, found: "):
        link([damaged], tmp_path / "image")
    with pytest.raises(UserError, match="image: expected ELF, found b'none'"):
        read_image_size(b"none")
