"""What a policy sees of a graph and of what it may do."""
