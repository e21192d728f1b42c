"""The systems that there are, one module or package each, with its record `SYSTEM`."""
