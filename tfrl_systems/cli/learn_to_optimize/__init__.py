"""What the verbs do for learn_to_optimize."""
