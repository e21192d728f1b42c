"""Faults for real runs: what is run, what strikes it, and what must come of it all the same."""
