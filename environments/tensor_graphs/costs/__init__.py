"""Estimate the cost of a graph: by a formula, or from measurements of its operators."""
