"""Run models: choose a backend, make inputs, and compare the speed and outputs of two models."""
