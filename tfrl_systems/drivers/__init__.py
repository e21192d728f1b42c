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
    episode_runner.py  the Runner that plays episodes: environments and an actor

The algorithms of P. Mayer's thesis (Distributed Deep Reinforcement Learning for Learn-To-Optimize,
Stuttgart, 2023) are here and in `training/loop.py`:

    4.1  jobs.Timings: `broadcasting_s`, and `waiting_s`, which the thesis calls collecting
    5.1  training/loop.py, one `OnlineLoop.step` for each training step
    5.2  episode_runner.py, which plays the episodes of a driver
    5.3  `Pool.map`. The thesis's drivers could not be pickled, so here each worker makes its own
    5.4  remote_pool.py: θ to every worker, then trajectories, merged in the order of the chunks
    5.5  pipes/worker_main.py

Two things differ. A worker gets chunks, as many as it can play, in place of a fixed share of the
episodes, so the experience is the same for any number of workers (the thesis's distributed runs
learned nothing, 6.2, and it could not say why). And the main process waits for whichever worker
answers first, not for one after another.

To add a kind, write one file with a `jobs.Pool` whose constructor takes the arguments that
`collect.make_pool` gives it, and add one line to `collect.POOLS`.
"""
