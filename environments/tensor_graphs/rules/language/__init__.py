"""The language of rules: expressions of tensors, terms about shapes, and a notation in Python."""
