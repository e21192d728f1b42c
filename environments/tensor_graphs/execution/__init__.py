"""Run models: backends, inputs, comparing the speed and the outputs of two models."""
