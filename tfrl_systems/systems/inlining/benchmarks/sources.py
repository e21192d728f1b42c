"""The built-in corpus, which `tfrl bench inlining` compiles if no other is given."""

from __future__ import annotations

import pathlib

from environments.inlining.corpus.building import build_corpus
from environments.inlining.corpus.modules import Corpus

_CONTAINERS = pathlib.Path(__file__).with_name("containers.h")
_USES = """\
%(type)s total_%(name)s(List<%(type)s>& list) {
  sort(list, Up());
  %(type)s sum = 0;
  for (%(type)s one : list) sum = sum + one;
  return sum;
}
void order_%(name)s(List<%(type)s>& list) { sort(list, Down()); }
%(type)s count_%(name)s(List<int>& keys) {
  Table<int, %(type)s> table;
  for (int key : keys) table.at(key %% 17) = table.at(key %% 17) + 1;
  List<%(type)s> counts;
  for (Entry<int, %(type)s>& one : table.entries()) counts.push(one.value);
  order_%(name)s(counts);
  return counts.empty() ? 0 : counts[0];
}
"""
_TYPES = ("int", "long", "double", "float", "short", "unsigned char")


def build_small_corpus(directory: pathlib.Path) -> Corpus:
    """Compile uses of the containers with the embedded clang, in an empty directory.

    Raises:
      UserError: the embedded clang is not installed.
    """
    sources = directory / "containers"
    sources.mkdir()
    containers = _CONTAINERS.read_text(encoding="utf-8")
    for count in range(1, len(_TYPES) + 1):
        uses = [
            _USES % {"type": type_name, "name": type_name.split()[-1]}
            for type_name in _TYPES[:count]
        ]
        (sources / f"types_{count}.cc").write_text(containers + "".join(uses))
    build_corpus([sources], directory / "corpus")
    return Corpus.load(directory / "corpus")
