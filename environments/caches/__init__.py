"""What was expensive to find out, kept for the next run: `table` lists the caches.

Several processes and machines may use a cache at the same time, and clear it meanwhile. Whatever
happens to its file, a cache gives back what was put into it or nothing. A cache that cannot be used
is no failure: the run goes on without it, and says so once. Only what programs load in place, which
a database cannot hold, lies in directories of its own.
"""
