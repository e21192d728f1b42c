"""A corpus of modules: reading one, and building one from sources."""
