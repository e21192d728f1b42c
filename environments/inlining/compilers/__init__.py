"""Compilers that ask for each decision: channel, processes, sizes of objects."""
