"""What rules are written in: expressions of tensors, terms about shapes, a notation in Python."""
