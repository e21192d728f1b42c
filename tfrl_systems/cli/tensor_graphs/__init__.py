"""The verbs, for tensor graphs."""
