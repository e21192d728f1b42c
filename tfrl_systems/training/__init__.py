"""Training loops, which collect and learn, and the directory that keeps a run."""
