"""What the verbs do for inlining."""
