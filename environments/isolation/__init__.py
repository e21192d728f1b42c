"""Run work in a separate process, so that a crash or an exit there does no harm here.

::

    the caller's process                       a process of its own
    ────────────────────                       ────────────────────
    process.Process   ── socket: wire.py ──▶   serving.serve: calls a function with each request,
      starts, asks    ◀── answers ─────────      and answers what it returns
      and ends it

`guardian` ends processes and removes directories when the caller's process is killed.
"""
