"""Collection: jobs, such as playing a chunk of episodes, done here or in other processes.

The caller says where as a value, `collect.Collect`, and gets a `jobs.Pool`. Every kind of pool
gives the same results, to the bit::

    caller                               a pool                      each worker
    ──────                               ──────                      ───────────
    make_pool(Collect("pipes", 2),  ──▶  starts its workers     ──▶  make_runner() -> Runner
              make_runner)
    pool.broadcast(variables)       ──▶  serialises them once   ──▶  Runner.load(variables)
    pool.map(chunks)                ──▶  JobQueue: who has what ──▶  Runner.run(chunk)
      [result or Failure, ...]      ◀──  in the chunks' order   ◀──    Experience

    collect.py         Collect; make_pool and its table: kind -> class
    jobs.py            what callers, pools and runners agree on: Chunk, Runner, Pool, Timings
    pool_parts.py      what pools are built from: JobQueue, RestartingRunner
    in_process.py      kind "inprocess": one runner in this process
    pipes/             kind "pipes": worker processes that are replaced when they die or hang
    episode_runner.py  the Runner that plays episodes: environments and an actor

A further kind is one file, with a class that is made like `in_process.InProcessPool`, and one line
in `collect.POOLS`.
"""
