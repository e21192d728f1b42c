"""A lower bound on the cost of a small graph, by equality saturation."""
