"""Policies outside training: saved, carried to workers, evaluated with NumPy alone."""
