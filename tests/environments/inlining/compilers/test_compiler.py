"""Each compiler on modules whose call sites are known by heart."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

import numpy as np
import psutil
import pytest

from environments.errors import UserError
from environments.inlining.compilers.compiler import make_compiler, run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.object_size import read_function_bytes, read_object_size
from environments.inlining.compilers.system_clang import SystemClang
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    HAND_WORKED_SITES,
    NO_CALL_SITES,
    NOTHING,
    UNREACHABLE_CALL_SITE,
    many_calls,
    num_descriptors,
    write_module,
)
from tests.requirements import need_one_of


def default(site):
    return site.default


@pytest.fixture
def hand_worked(tmp_path):
    # As text: LLVM 19 reads no bitcode of LLVM 22.
    return write_module(tmp_path, "hand_worked", HAND_WORKED, text=True)


def test_call_sites_come_in_order_with_llvms_own_decision(compiler, hand_worked):
    defaults = []
    with compiler.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            assert compilation.announced == compiler.announced
            assert len(site.features) == len(compiler.announced)
            defaults.append(site.default)
            compilation.advise(site.default)
        compiled = compilation.result()
    assert defaults == [default for _, _, default in HAND_WORKED_SITES]
    assert compiled.decisions.tolist() == HAND_WORKED_DEFAULT
    assert compiled.decisions.dtype == np.int8


def test_names_and_linkage_where_llvm_tells_them(compiler, hand_worked):
    seen = []
    with compiler.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            seen.append((site.callee, site.caller))
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = dict(compilation.linkage)
    # Before the decision LLVM names a call site only where its default is not to inline.
    assert seen == [
        (None, None) if inlines else (callee, caller)
        for callee, caller, inlines in HAND_WORKED_SITES
    ]
    assert compiled.callees == tuple(callee for callee, _, _ in HAND_WORKED_SITES)
    assert linkage == {
        "leaf": "internal",
        "once": "linkonce_odr",
        "caller": "external",
        "other": "external",
    }


@pytest.mark.parametrize("ir", [HAND_WORKED, NO_CALL_SITES, NOTHING, many_calls(40)])
def test_the_default_gives_the_bytes_of_plain_oz(compiler, tmp_path, ir):
    module = write_module(tmp_path, "module", ir, text=True)
    assert run_policy(compiler, module, default).size == compiler.compile_plain(module).size


def test_a_call_site_that_inlining_makes_unreachable_is_not_asked_about(compiler, tmp_path):
    """Why the default's decisions alone do not always give a plain -Oz."""
    module = write_module(tmp_path, "module", UNREACHABLE_CALL_SITE, text=True)
    steered = run_policy(compiler, module, default)
    assert steered.callees == ("begin", "construct") and steered.decisions.tolist() == [1, 1]
    # It is asked about where the landing pad stays reachable.
    refused = run_policy(compiler, module, lambda site: 0)
    assert refused.callees == ("begin", "construct", "destroy")
    assert steered.size != compiler.compile_plain(module).size


def test_other_decisions_give_other_bytes_and_a_replay_the_same(compiler, tmp_path):
    module = write_module(tmp_path, "module", many_calls(12), text=True)
    default_size = run_policy(compiler, module, default).size
    never = run_policy(compiler, module, lambda site: 0)
    assert never.decisions.tolist() == [0] * 12
    assert never.size.text_bytes > default_size.text_bytes  # each is called once, by one
    recorded = iter(never.decisions)
    assert run_policy(compiler, module, lambda site: next(recorded)).size == never.size


def test_a_module_without_call_sites_is_no_error(compiler, tmp_path):
    module = write_module(tmp_path, "module", NO_CALL_SITES, text=True)
    compiled = run_policy(compiler, module, default)
    assert compiled.decisions.tolist() == [] and compiled.size.exec_bytes == 4  # push 42, pop, ret


def test_a_module_without_functions_has_no_text(compiler, tmp_path):
    module = write_module(tmp_path, "module", NOTHING, text=True)
    assert run_policy(compiler, module, default).size.text_bytes == 0


def test_a_second_module_at_the_same_time_is_refused(embedded, hand_worked):
    with embedded.compile(hand_worked) as compilation:
        compilation.next_site()
        with pytest.raises(RuntimeError, match="one module at a time"):
            embedded.compile(hand_worked)


def test_the_order_of_modules_does_not_matter(embedded, tmp_path):
    modules = [write_module(tmp_path, f"m{count}", many_calls(count)) for count in (3, 9)]
    forwards = [run_policy(embedded, module, default).size for module in modules]
    backwards = [run_policy(embedded, module, default).size for module in reversed(modules)]
    assert forwards == backwards[::-1]


def test_direct_calls_as_written(compiler, hand_worked):
    assert compiler.read_calls(hand_worked) == {
        "leaf": ["sink"],
        "once": ["sink"],
        "caller": ["leaf", "once"],
        "other": ["caller", "leaf"],
    }


def test_function_bytes_add_up(compiler, hand_worked):
    with compiler.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            compilation.advise(site.default)
        compiled = compilation.result()
    size, by_function = compiled.size, read_function_bytes(compiled.data)
    assert set(by_function) == {"leaf", "caller", "other"}  # once is inlined and dropped
    assert size.exec_bytes <= sum(by_function.values()) <= size.text_bytes


def test_sizes_are_those_of_the_sections(tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED)
    compiler = EmbeddedLlvm()
    with compiler.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            compilation.advise(site.default)
        data = compilation._backend.read_object()
    compiler.close()
    (tmp_path / "module.o").write_bytes(data)
    size = read_object_size(data)
    assert read_function_bytes(data)
    program = need_one_of("size", "llvm-size-19")
    shown = subprocess.check_output([program, tmp_path / "module.o"], text=True)
    assert int(shown.splitlines()[1].split()[0]) == size.text_bytes


def test_a_clang_of_its_own_options_is_asked_with_them(clang, tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED, text=True)
    options = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-Oz")
    own = type(module)(module.name, module.path, ".", "c", options)
    assert run_policy(clang, own, default).decisions.tolist() == HAND_WORKED_DEFAULT
    assert run_policy(clang, own, default).size == clang.compile_plain(own).size


def test_llvm_19_sends_its_default_in_the_place_of_another_feature(clang):
    is_19 = clang.facts.version.startswith("19.")
    feature = "callee_basic_block_count" if is_19 else "inlining_default"
    assert clang.facts.default_feature == feature
    assert "inlining_default" in clang.announced


def test_a_clang_whose_default_cannot_be_asked_for(clang, hand_worked, monkeypatch):
    """No version is known; the cost tells then, and nothing is named."""
    facts = dataclasses.replace(clang.facts, default_feature="")
    monkeypatch.setattr(clang, "facts", facts)
    seen = []
    with clang.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            seen.append((site.callee, site.caller, site.default))
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = compilation.linkage
    assert seen == [(None, None, default) for _, _, default in HAND_WORKED_SITES]
    assert compiled.callees == (None,) * 5 and linkage == {}
    assert "inlining_default" not in compilation.announced


def test_a_worker_that_has_grown_is_replaced(embedded, hand_worked, monkeypatch):
    first = run_policy(embedded, hand_worked, default)
    worker = psutil.Process(embedded._worker.process.pid)
    assert 20 << 20 < embedded._worker.memory_bytes < 512 << 20
    monkeypatch.setattr("environments.inlining.compilers.embedded._MAX_WORKER_BYTES", 20 << 20)
    assert run_policy(embedded, hand_worked, default).size == first.size
    assert not worker.is_running()


def test_no_descriptor_is_leaked_and_memory_stays_bounded(embedded, tmp_path):
    module = write_module(tmp_path, "module", many_calls(20))
    run_policy(embedded, module, default)
    worker = psutil.Process(embedded._worker.process.pid)
    for _ in range(20):
        run_policy(embedded, module, default)
    descriptors, memory_bytes = num_descriptors(), worker.memory_info().rss
    worker_descriptors = worker.num_fds()
    for _ in range(200):
        run_policy(embedded, module, default)
    assert num_descriptors() <= descriptors
    assert worker.num_fds() == worker_descriptors
    assert worker.memory_info().rss - memory_bytes < 64 << 20


def test_clang_leaks_no_descriptor(clang, tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED, text=True)
    run_policy(clang, module, default)
    descriptors = num_descriptors()
    for _ in range(5):
        run_policy(clang, module, default)
    assert num_descriptors() <= descriptors


def script(directory: pathlib.Path, text: str) -> pathlib.Path:
    path = directory / "compiler"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_a_program_that_is_not_there():
    with pytest.raises(UserError, match="found no program 'no-such-clang'; install one"):
        SystemClang("no-such-clang")


@pytest.mark.parametrize(
    "text, message",
    [
        ("echo 'gcc (Debian 12.2.0) 12.2.0'", "found .* that says 'gcc .Debian 12.2.0. 12.2.0'"),
        ("exit 1", "that says 'nothing'"),
        ("echo 'Debian clang version 14.0.6'", "found .* of version 14.0.6; install a newer one"),
        ("echo 'clang version 21.0.0'", "to ask for inlining advice, found that it does not"),
    ],
    ids=["gcc", "silent", "too-old", "no-channel"],
)
def test_a_wrong_program_is_named_at_construction(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as caught:
        SystemClang(script(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_gcc_itself_is_refused():
    try:
        SystemClang("gcc")
    except UserError as error:
        assert "expected" in str(error) and "gcc" in str(error)
    else:
        pytest.fail("gcc was taken for clang")


def test_make_compiler(clang):
    assert make_compiler().name == "embedded"
    assert make_compiler(clang.executable).identity == clang.identity
