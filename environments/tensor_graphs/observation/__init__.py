"""Make the observations that a policy chooses by: the graph, and the actions that are allowed."""
