"""Training loops: who collects what, what is learned from it, and what is kept of a run."""
