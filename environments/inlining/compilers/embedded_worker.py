"""The process in which the embedded LLVM runs; it takes requests for one module each on stdin.

LLVM's options hold for a whole process, and a fatal error in LLVM ends the process: so LLVM never
runs in the user's own process. This file is started as a script and imports nothing of this
project, so it starts in a fraction of a second.

The first argument is the file descriptor that the worker writes objects to, each from the start of
the file. The other arguments are LLVM's options (``-name=value`` each). The two sides then exchange
lines of JSON::

    from the parent   {"bitcode": PATH, "compiles": BOOL, "calls": BOOL}
    to the parent     {"functions": [[NAME, LINKAGE], ...]}         defined functions, module order
    to the parent     {"calls": {NAME: [NAME, ...], ...},           if asked for: direct calls and
                       "instructions": {NAME: N, ...}}              number of instructions
    to the parent     {"done": true, "memory_bytes": N}             after the object was written
                      {"error": MESSAGE}                            or what went wrong

The process ends when its stdin does, even in the middle of a compile.
"""

from __future__ import annotations

import json
import os
import pathlib
import queue
import sys
import threading

import llvmlite.binding as llvm

_BITCODE_MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


def _reply(message: dict) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _serve(request: dict, object_fd: int) -> None:
    # A fresh context: in a shared one, struct names get suffixes that depend on earlier modules.
    context = llvm.create_context()
    data = pathlib.Path(request["bitcode"]).read_bytes()
    if data.startswith(_BITCODE_MAGIC):
        parsed = llvm.parse_bitcode(data, context)
    else:
        parsed = llvm.parse_assembly(data.decode(), context)
    with parsed as module:
        functions = [(f.name, f.linkage.name) for f in module.functions if not f.is_declaration]
        _reply({"functions": functions})
        if request["calls"]:
            calls, instructions = _read(module)
            _reply({"calls": calls, "instructions": instructions})
        if not request["compiles"]:
            return
        target = llvm.Target.from_triple(module.triple)
        # The default code model is for JIT compilers and would put code into .ltext.
        machine = target.create_target_machine(opt=2, reloc="pic", codemodel="default")
        # llvmlite has no size level, but functions compiled with -Oz carry minsize and optsize.
        builder = llvm.create_pass_builder(
            machine, llvm.create_pipeline_tuning_options(speed_level=2)
        )
        builder.getModulePassManager().run(module, builder)
        _write(object_fd, machine.emit_object(module))


def _write(fd: int, data: bytes) -> None:
    os.ftruncate(fd, 0)
    offset = 0
    while offset < len(data):
        offset += os.pwrite(fd, data[offset:], offset)


def _read(module: llvm.ModuleRef) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return what each defined function calls directly, and its number of instructions."""
    calls: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for function in module.functions:
        if function.is_declaration:
            continue
        called, count = set(), 0
        for block in function.blocks:
            for instruction in block.instructions:
                count += 1
                if instruction.opcode in ("call", "invoke"):
                    *_, target = instruction.operands  # the called operand is the last one
                    called.add(target.name)
        calls[function.name] = sorted(name for name in called if name)
        counts[function.name] = count
    return calls, counts


def _memory_bytes() -> int:
    resident_pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(resident_pages) * os.sysconf("SC_PAGE_SIZE")


def _requests() -> queue.SimpleQueue[str]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


def main(object_fd: int, options: list[str]) -> None:
    """Serve requests until stdin ends."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    for option in options:
        llvm.set_option("", option)
    requests = _requests()
    while True:
        request = json.loads(requests.get())
        try:
            _serve(request, object_fd)
        except (RuntimeError, OSError) as error:
            _reply({"error": " ".join(str(error).split())})
        else:
            _reply({"done": True, "memory_bytes": _memory_bytes()})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
