"""Models run in processes of their own: onnxruntime may crash, and takes nobody along.

::

    the caller's process                              a process of its own
    ────────────────────                              ────────────────────
    remote.Isolated     a backend, as any other       server: opens and runs models by
      process.Process   ── socket: wire.py ──▶          the backends of this room
        starts, asks    ◀── answers ─────────
        and ends it
"""
