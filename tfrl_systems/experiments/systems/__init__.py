"""The systems: one module or package each, which holds its record as `SYSTEM`."""
