"""Function approximators: what maps observations to numbers."""
