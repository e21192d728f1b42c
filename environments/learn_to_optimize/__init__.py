"""Learning to optimise: a policy learns where a function is least, given its free parameters."""
