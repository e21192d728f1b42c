"""Collection: who runs the jobs of an iteration, in this process or in others."""
