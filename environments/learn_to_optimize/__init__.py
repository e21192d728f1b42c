"""Learning to optimise: the minimum of a function as a function of its free parameters."""
