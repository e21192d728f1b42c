"""Worker processes on this machine that are replaced when they die or hang.

::

    the caller's process                                       a worker process
    ────────────────────                                       ────────────────
    pool.PipePool             one loop over all sockets        worker_main: makes a runner, then
      worker_handle.WorkerHandle  ── socket: messages.py ──▶     loads data and runs jobs
        starts, times and         ◀── answers ─────────────
        kills one process         ── a pipe, never written ──▶ is killed when the pipe closes, which
                                                                 the kernel does however the caller
                                                                 ends
"""
