"""The systems: what only one of them needs, each in a room of its own."""
