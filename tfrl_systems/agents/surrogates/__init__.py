"""Models of a function of actions and contexts, which the agent `surrogate` asks where to look."""
