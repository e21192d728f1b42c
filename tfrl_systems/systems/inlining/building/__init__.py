"""`tfrl build`: a command of the user's own, with a policy inside his clang."""
