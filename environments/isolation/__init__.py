"""Work in processes of its own: what may crash, print or exit there takes nobody along.

::

    the caller's process                       a process of its own
    ────────────────────                       ────────────────────
    process.Process   ── socket: wire.py ──▶   serving.serve: calls a function with each request,
      starts, asks    ◀── answers ─────────      and answers what it returns
      and ends it
"""
