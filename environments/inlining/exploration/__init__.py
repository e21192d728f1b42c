"""Exploration: trying other decisions around those of a policy, to find what they would save."""
