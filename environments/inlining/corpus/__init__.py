"""A corpus of modules: what it is, and how one is built from sources."""
