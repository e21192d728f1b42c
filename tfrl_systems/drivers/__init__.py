"""Collection: jobs, such as playing a chunk of episodes, run in this process or in others.

The caller says where jobs run with a `collect.Collect`, and gets a `jobs.Pool`. Every kind of pool
gives the same results, to the bit::

    caller                               a pool                      each worker
    ──────                               ──────                      ───────────
    make_pool(Collect("pipes", 2),  ──▶  starts its workers     ──▶  make_runner() -> Runner
              make_runner)
    pool.broadcast(variables)       ──▶  serialises them once   ──▶  Runner.load(variables)
    pool.map(chunks)                ──▶  JobQueue: who has what ──▶  Runner.run(chunk)
      [result or Failure, ...]      ◀──  in the chunks' order   ◀──    Experience

    collect.py         Collect; make_pool and its table: kind -> class
    jobs.py            what all share: Chunk, Runner, Pool, JobQueue, Timings
    requirements.py    files and programs that runners need where they run
    worker.py          what a process holds that does jobs: Worker, RestartingRunner
    remote_pool.py     the loop of pools whose workers are other processes: RemotePool, Handle
    in_process.py      kind "inprocess": one runner in this process
    pipes/             kind "pipes": worker processes that are replaced when they die or hang
    ray_pool/          kind "ray": the same on the nodes of a Ray cluster; needs Ray
    processes.py       what worker processes are started with
    episode_runner.py  the Runner that plays episodes: environments and an actor

To add a kind, write one file with a `jobs.Pool` whose constructor takes the arguments of
`in_process.InProcessPool`, and add one line to `collect.POOLS`.
"""
