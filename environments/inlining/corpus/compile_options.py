"""Which options of other people's builds a corpus keeps.

A corpus compiles for x86-64 with `-Oz`, so that only the options that say what a source means are
kept: includes, macros, the language and its dialect. A build may be for another compiler or another
machine: GCC's options, those of newer clangs, of ARM, of WebAssembly. A compiler names those that
it does not know (`read_refusals`), and the corpus compiles without them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

Group = tuple[str, ...]
"""An option with the words that belong to it, for instance ("-I", "include")."""

_KEPT_WITH_VALUE = frozenset(
    ("-I", "-D", "-U", "-F", "-isystem", "-iquote", "-idirafter", "-imacros", "-iprefix")
    + ("-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-iframework")
    + ("-iframeworkwithsysroot", "-cxx-isystem", "-stdlib++-isystem", "-isystem-after")
    + ("-isysroot", "-include", "-include-pch", "-ivfsoverlay", "--sysroot")
    + ("--include-directory", "--define-macro", "--undefine-macro", "--imacros", "--include")
    + ("-gcc-toolchain", "-ftrapv-handler")
)
# Where results go, what is linked, for which machine, how to optimise, and what loads other code.
_DROPPED_WITH_VALUE = frozenset(
    ("-o", "-x", "-MF", "-MT", "-MQ", "-MJ", "-arch", "-l", "-L", "-Xlinker", "-Xassembler")
    + ("-u", "-b", "-T", "-z", "-e", "-G", "--param", "-target", "--target", "-mllvm", "-mmlir")
    + ("-B", "-wrapper", "--config", "-ccbin", "-specs", "-dumpbase", "-dumpbase-ext", "-dumpdir")
    + ("-aux-info", "-rpath", "-framework", "-install_name", "-filelist", "-undefined")
    + ("-current_version", "-compatibility_version", "-exported_symbols_list", "-mthread-model")
    + ("-meabi", "-working-directory", "--output", "-index-store-path", "-serialize-diagnostics")
    + ("--serialize-diagnostics", "-dependency-file", "-dependency-dot", "-dsym-dir")
    + ("-module-dependency-dir", "-gen-cdb-fragment-path", "-Xanalyzer", "--analyzer-output")
    + ("-Xopenmp-target", "-Xcuda-ptxas", "-Xcuda-fatbinary", "-Xoffload-linker", "-Xclangas")
    + ("-imultilib", "-imultiarch", "-iapinotes-modules", "-fmodules-user-build-path")
    + ("-vfsoverlay", "-resource-dir", "-ccc-install-dir", "-ccc-gcc-name")
    + ("-darwin-target-variant", "-darwin-target-variant-triple")
    + ("-fexperimental-openacc-macro-override",)
)
_DROP = re.compile(
    # What is done, and what is written or printed.
    r"-(c|S|E|P|C|CC|H|v|Q|###|d[A-Z]+|i-|I-|o.+|x.+|M.*|save-.*|emit-.*|time|print-.*|ccc-.*|cc1.*"
    r"|fsyntax-only|fmodule-(output|header).*|fdump-.*|fstack-usage|fcallgraph-info.*|fopt-info.*"
    r"|fthin.*|working-directory=.*|fverbose-asm|ftime-.*|fproc-stat.*|frecord-.*|f(no-)?save-.*"
    r"|foptimization-record.*"
    r"|-(compile|assemble|preprocess|output=.*|verbose|analyze|precompile|version|help|optimize.*"
    r"|debug.*|write-.*|rsp-quoting=.*|driver-mode=.*|param=.*|coverage|pass-.*)"
    # Diagnostics; `-Wno-` may turn an error off.
    r"|W(?!no-).*|w|pedantic.*|f(no-)?diagnostics.*|f(no-)?color-diagnostics|fmax-errors=.*"
    r"|ferror-limit=.*|f(no-)?analyzer.*|f(no-)?show-.*|R.*"
    # Debug information, optimisation, instrumentation, and what needs one of these.
    r"|O.*|g.*|pg?|pipe|fembed-bitcode.*|f(no-)?(lto|fat-lto-objects|split|whole-program|debug"
    r"|virtual-function-elimination|unique-internal|basic-block|(auto-|cs-|memory-)?profile"
    r"|test-coverage"
    r"|coverage|sanitize|xray|instrument|omit-frame-pointer|integrated|ipa|tree|gcse|var-tracking"
    r"|gnu-unique|conserve-stack|allow-store-data-races|reorder-blocks|gnu-tm|partial-inlining"
    r"|inline-limit)\b.*"
    # Precompiled headers and caches of modules.
    r"|f(no-)?pch-.*|f(no-)?(implicit-)?(cxx-)?modules?(?!-file).*|fbuild-session.*"
    # The machine.
    r"|fopenmp-targets.*|-(offload|cuda|hip)-.*|m(arch|cpu|tune|mcu)=.*"
    r"|mno-omit-leaf-frame-pointer|m16|m32|mx32|m64|-target=.*"
    # Linking.
    r"|l.+|L.+|T.+|z.+|s|s[A-Z].*|rdynamic|shared.*|static.*|(no-?)?pie|nostdlib|nostartfiles"
    r"|nodefaultlibs|fuse-ld.*|fuse-linker.*|rtlib=.*|-rtlib=.*|-?unwindlib=.*"
    # What loads or runs other code.
    r"|fplugin.*|fpass-plugin.*|X.+|mllvm=.*|mmlir=.*|resource-dir=.*|B.+|-?config.*|-?specs=.*"
    r"|fcrash-.*)",
    re.DOTALL,
)
# Options of `clang -cc1` that say what a source means; of the others some load code.
_CC1_WITH_VALUE = re.compile(
    r"-(D|U|I|include|include-pch|imacros|isystem|iquote|idirafter|internal(-externc)?-isystem"
    r"|c-isystem|cxx-isystem)"
)
_CC1_UNWANTED_WITH_VALUE = re.compile(
    r"-(load|plugin|add-plugin|plugin-arg-.*|mllvm|target-(cpu|feature|abi)|triple|o|main-file-name)"
)
_CC1_ALONE = re.compile(
    r"-(std=.*|[DUI].+|f(no-)?((cxx-|objc-)?exceptions|rtti.*|char8_t|signed-char|unsigned-char"
    r"|short-wchar|wchar|signed-wchar|short-enums|operator-names|gnu-keywords|ms-.*|blocks"
    r"|declspec|sized-deallocation|aligned-allocation|visibility.*|coroutines.*|concepts.*"
    r"|relaxed-template-template-args|experimental-library|delayed-template-parsing))",
    re.DOTALL,
)
_INCLUDE = re.compile(r"--?include(?!-|$)=?(.+)", re.DOTALL)
_OTHER_HEADERS = re.compile(
    r"-(-sysroot=.*|-sysroot|isysroot.*|stdlib=.*|-stdlib=.*|-gcc-(toolchain|install-dir)=.*"
    r"|gcc-toolchain)"
)
_NEEDED = re.compile(
    r"-(D|U|I|F|-?include|-?imacros|-define|-undefine|isystem|iquote|idirafter|iprefix|iwith"
    r"|iframework|internal|c-isystem|cxx-isystem|ivfs|fmodule-file).*",
    re.DOTALL,
)
# An error in a source has the place of the error in front; an error in options has not.
_ERROR = re.compile(r"^(?:[^:\n]+: )?(?:fatal )?error: (.*)$", re.MULTILINE)
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
_MACHINE = re.compile(r"-m|-E[BL]$")
_ALWAYS = re.compile(
    r"unknown (?:argument|clang option)|unsupported (?:option|argument) .* for target"
    r"|has no LLVM CPU feature"
)


def option_groups(words: Iterable[str]) -> Iterator[Group]:
    """Divide the words of a command line into options with their values, and operands.

    Yields:
        Options, and each operand as a group of its own without a leading "-". What is meant for
        the preprocessor (`-Wp,`, `-Xpreprocessor`) is taken as if it stood there itself; pairs of
        `-Xclang` are one group. A last option that lacks its value is left out.
    """
    rest = iter(_direct(words))
    for word in rest:
        if word == "--":
            for operand in rest:
                yield (operand if not operand.startswith("-") else f"./{operand}",)
        elif word == "-Xclang":
            yield from _cc1_groups(rest)
        elif word in _KEPT_WITH_VALUE or word in _DROPPED_WITH_VALUE:
            yield from ((word, value) for value in _next(rest))
        else:
            yield (word,)


def clean_arguments(
    arguments: Sequence[str], header_fn: Callable[[str], str | None] = lambda _: None
) -> tuple[str, ...]:
    """Keep only those of a build's compiler options that determine what the source means.

    Args:
        arguments: options without the compiler itself; sources among them are left out.
        header_fn: the header of a precompiled header, if there is one.

    Returns:
        The options that select includes, macros, the language and its dialect. Optimisation,
        target, warnings, debug information, outputs and linking are left out, and so is what loads
        other code.
    """
    groups = [group for group in map(_plain, option_groups(arguments)) if _is_kept(group)]
    included = {group[3] for group in groups if _includes(group)}
    options: list[str] = []
    for group in groups:
        if group[0] in ("-imacros", "--imacros") and group[1] in included:
            # Read for its macros first, a header with `#pragma once` would be left out later.
            continue
        header = header_fn(group[-1]) if "-include-pch" in group[:2] else None
        if header is None:
            options += group
        elif header not in included:
            options += _include(header)
    return tuple(options)


def header_sets(
    arguments: Sequence[str], exists_fn: Callable[[str], bool]
) -> tuple[tuple[str, ...], ...]:
    """Return sets of options to try in turn: with the system headers of the build, and without.

    Returns:
        The options without those that choose a system that is not there. If one that chooses other
        headers is left, a second set has the headers of this machine.
    """
    groups = list(option_groups(arguments))
    own = [group for group in groups if not _OTHER_HEADERS.fullmatch(group[0])]
    present = [
        group
        for group in groups
        if not _OTHER_HEADERS.fullmatch(group[0])
        or "-stdlib=" in group[0]
        or exists_fn(_value(group))
    ]
    return (_flat(present),) if present == own else (_flat(present), _flat(own))


def without_options(arguments: Sequence[str], unwanted: Iterable[Group]) -> tuple[str, ...]:
    """Return options without some groups."""
    left_out = frozenset(unwanted)
    return _flat(group for group in option_groups(arguments) if group not in left_out)


def _direct(words: Iterable[str]) -> Iterator[str]:
    """Yield words, with those for the preprocessor in the place of the option that passes them."""
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
        elif word in ("-Xpreprocessor", "-Xcompiler"):
            yield from _next(rest)
        elif word.startswith("-Wp,"):
            yield from word.split(",")[1:]
        else:
            yield word


def _cc1_groups(rest: Iterator[str]) -> Iterator[Group]:
    """Yield the groups of options for `clang -cc1`; the first `-Xclang` has been read."""
    for option in _next(rest):
        group: Group = ("-Xclang", option)
        if _CC1_WITH_VALUE.fullmatch(option) or _CC1_UNWANTED_WITH_VALUE.fullmatch(option):
            # The value follows another -Xclang.
            group += tuple(word for _ in range(2) for word in _next(rest))
        yield group


def _next(rest: Iterator[str]) -> tuple[str, ...]:
    return tuple(word for word in (next(rest, None),) if word is not None)


def _plain(group: Group) -> Group:
    if group[0] in ("-include", "--include"):
        return _include(group[1])
    if joined := _INCLUDE.fullmatch(group[0]):
        return _include(joined[1])
    return group


def _include(header: str) -> Group:
    # For `-include`, clang's driver would prefer a precompiled header that lies beside the header,
    # and that may have been made with other options.
    return ("-Xclang", "-include", "-Xclang", header)


def _includes(group: Group) -> bool:
    return group[:2] == ("-Xclang", "-include")


def _is_kept(group: Group) -> bool:
    option = group[0]
    if option == "-Xclang":
        if len(group) == 2:
            return bool(_CC1_ALONE.fullmatch(group[1]))
        is_pair = len(group) == 4 and group[2] == "-Xclang"
        return is_pair and bool(_CC1_WITH_VALUE.fullmatch(group[1]))
    if option in _KEPT_WITH_VALUE:
        return True
    return option.startswith("-") and len(group) == 1 and not _DROP.fullmatch(option)


def _value(group: Group) -> str:
    """Return the value of `--option=value`, `--option value` or `-isysrootvalue`."""
    if len(group) > 1:
        return group[1]
    return group[0].removeprefix("-isysroot").rpartition("=")[2]


def _name(group: Group) -> str:
    return group[1] if group[0] == "-Xclang" else group[0]


def _flat(groups: Iterable[Group]) -> tuple[str, ...]:
    return tuple(word for group in groups for word in group)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An option that a compiler refuses; `always` if whatever the source and other options are."""

    group: Group
    always: bool


def read_refusals(messages: str, arguments: Sequence[str]) -> list[Refusal]:
    """Return the options that a compiler refused.

    Returns:
        For each error that names one of the options, this option; for an error that names another,
        those of the machine. Never those that say what a source means, such as `-D`.
    """
    groups = [group for group in option_groups(arguments) if not _NEEDED.fullmatch(_name(group))]
    refusals = []
    for error in _ERROR.finditer(messages):
        names = [first or second for first, second in _QUOTED.findall(error[1])]
        group = next(_named(names, groups), None)
        if group is not None:
            refusals.append(Refusal(group, bool(_ALWAYS.search(error[1]))))
        elif any(name.startswith(("-m", "-f")) for name in names):
            # Clang names an option by another name: -EB as -mbig-endian. It is one of a machine.
            refusals += [Refusal(group, False) for group in groups if _MACHINE.match(group[0])]
    return refusals


def _named(names: Sequence[str], groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the options that an error names: those with the very name first."""
    options = [(_name(group), group) for group in groups]
    for is_meant in (_is_named, _has_feature_or_value, _begins):
        for name in names:
            yield from (group for option, group in options if is_meant(option, name))


def _is_named(option: str, name: str) -> bool:
    """Return whether a name is an option's, perhaps without dashes or without the value."""
    bare, text = name.lstrip("-"), option.lstrip("-")
    return text == bare or (bare.endswith("=") and text.startswith(bare))


def _has_feature_or_value(option: str, name: str) -> bool:
    """Return whether a name is the feature that an option turns on or off, or its value."""
    feature = _letters(name)
    if option.startswith("-m") and _letters(option[2:]) in (feature, f"no{feature}"):
        return True
    return option.startswith(("-m", "-f", "-std=")) and option.partition("=")[2] == name


def _begins(option: str, name: str) -> bool:
    """Return whether a name is an option's whose value follows at once, as -G of -G0."""
    return name.startswith("-") and len(name) > 1 and option.startswith(name)


def _letters(text: str) -> str:
    return re.sub(r"[-_.]", "", text)
